"""The wheel holds the package, its licence and its command, and nothing else.

Rejected: a wheel without a package that `pyproject.toml` does not list, one without the templates,
the marker `py.typed` or the types of the public names, one with tests or benchmarks, one whose
version is not the package's, and types that miss the mistakes of a user.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest

import keras_capsule_poe

ROOT = Path(__file__).parents[1]
WANTED = 77  # as pyproject.toml asks for
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel as an open archive, built of a copy: setuptools leaves files beside its sources."""
    found = int(metadata.version("setuptools").split(".")[0])
    if found < WANTED:
        pytest.skip(f"setuptools {WANTED} or newer builds the wheel, here is {found}")
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    odd = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in ("keras_capsule_poe", "cli", "saved_models", "tests", "benchmarks", "examples"):
        shutil.copytree(ROOT / folder, source / folder, ignore=odd)
    for name in ("pyproject.toml", "requirements.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-c", BUILD, target]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = target.iterdir()
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def about(wheel):
    """The folder of the wheel's metadata."""
    return f"keras_capsule_poe-{keras_capsule_poe.__version__}.dist-info"


def test_it_holds_every_source_file_and_no_other(wheel, about):
    package = {f"keras_capsule_poe/{name}" for name in sources("keras_capsule_poe")}
    package |= {f"keras_capsule_poe/cli/{name}" for name in sources("cli")}
    package |= {
        f"keras_capsule_poe/{name}" for name in ("py.typed", "__init__.pyi", "_keywords.pyi")
    }
    templates = ROOT / "keras_capsule_poe/templates"
    package |= {f"keras_capsule_poe/templates/{path.name}" for path in templates.glob("*.*")}
    # The page of the explorer, where `make page` has built it.
    built = ROOT / "keras_capsule_poe/explorer/built"
    package |= {f"keras_capsule_poe/explorer/built/{path.name}" for path in built.glob("*")}
    pretrained = ROOT / "saved_models/pretrained"
    kept = (
        path for path in pretrained.rglob("*") if path.suffix in (".py", ".keras", ".json", ".md")
    )
    package |= {f"keras_capsule_poe/saved_models/{path.relative_to(pretrained)}" for path in kept}
    assert {name for name in wheel.namelist() if not name.startswith(f"{about}/")} == package


def sources(folder):
    return [str(path.relative_to(ROOT / folder)) for path in (ROOT / folder).rglob("*.py")]


def test_files_are_those_of_the_repository(wheel):
    for name in ("__init__.py", "__init__.pyi", "core/routing.py", "py.typed"):
        name = f"keras_capsule_poe/{name}"
        assert wheel.read(name) == (ROOT / name).read_bytes()
    assert wheel.read("keras_capsule_poe/cli/main.py") == (ROOT / "cli/main.py").read_bytes()


def test_it_has_the_licence_the_command_and_what_is_required(wheel, about):
    assert wheel.read(f"{about}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    commands = wheel.read(f"{about}/entry_points.txt").decode()
    assert "capspoe = keras_capsule_poe.cli.main:main" in commands.splitlines()
    known = Parser().parsestr(wheel.read(f"{about}/METADATA").decode())
    assert known["Version"] == keras_capsule_poe.__version__
    always = [line for line in known.get_all("Requires-Dist") if "extra ==" not in line]
    names = [re.match(r"[\w-]+", line)[0] for line in always]
    assert known.get_all("Project-URL") == ["Paper, https://arxiv.org/abs/1907.11643"]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert names == [re.match(r"[\w-]+", line)[0] for line in lines]


def test_the_changelog_begins_with_this_version():
    versions = re.findall(r"^## \[?([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == keras_capsule_poe.__version__


CHECKERS = {
    "mypy": ["--config-file=", "--python-executable"],
    "pyright": ["--pythonpath"],
}


@pytest.mark.long
@pytest.mark.parametrize("checker", CHECKERS)
def test_type_checkers_find_the_mistakes_of_a_user(checker, wheel, tmp_path):
    """Each line of the wrong uses is an error, none of the right ones is."""
    pytest.importorskip(checker)
    venv.create(tmp_path / "venv")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    wheel.extractall(site)
    (site / "others.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")))
    files = [shutil.copy(path, tmp_path) for path in (ROOT / "tests/typing").glob("*.py")]
    command = [sys.executable, "-m", checker, *CHECKERS[checker], tmp_path / "venv/bin/python"]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 300, "env": quiet}
    text = subprocess.run([*command, *files], **options).stdout
    found = {(name, int(line)) for name, line in re.findall(r"(\w+)\.py:(\d+):.*error", text)}
    lines = (ROOT / "tests/typing/wrong.py").read_text().splitlines()
    first = lines.index("# Mistakes") + 2
    assert found == {("wrong", number) for number in range(first, len(lines) + 1)}, text
