"""The scripts in examples/ run as their docstrings say, each in a process of its own."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(folder, name, *arguments, **environment):
    """What an example prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def unsupervised(tmp_path_factory):
    """What the unsupervised example prints; its model is somewhere below its folder."""
    return run(tmp_path_factory.mktemp("unsupervised"), "unsupervised_capsules.py")


def named(line, text):
    """The path that a line of output ends in."""
    return Path(re.search(rf"^{line}.*: (.+)$", text, re.MULTILINE)[1])


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_supervised_capsules(tmp_path, backend):
    shown = run(tmp_path, "supervised_capsules.py", KERAS_BACKEND=backend)
    assert f"Backend {backend}" in shown
    # Ten classes: far above a guess, and the loaded file gives it, not the trained model.
    assert float(re.search(r"Test accuracy (\S+)", shown)[1]) > 0.8


def test_unsupervised_capsules(unsupervised):
    with Image.open(named("Samples", unsupervised)) as grid:
        # Six columns and four rows of digits, twice enlarged, with gaps of two pixels.
        assert grid.size == (2 * (6 * 30 + 2), 2 * (4 * 30 + 2))
    assert "finished" in unsupervised and "nan" not in unsupervised


def test_a_saved_model_elsewhere(unsupervised, tmp_path):
    shown = run(tmp_path, "saved_model_elsewhere.py", named("SavedModel", unsupervised))
    assert "capsules (4, 6, 16) probabilities (4, 6)" in shown
    assert "decoded (4, 28, 28, 1)" in shown
    assert "samples (8, 28, 28, 1)" in shown
    tree = ast.parse((EXAMPLES / "saved_model_elsewhere.py").read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in [getattr(node, "module", None), *(alias.name for alias in node.names)]
        if name
    }
    assert imported <= {*sys.stdlib_module_names, "Path", "numpy", "tensorflow"}


def test_fit_on_arrays(tmp_path):
    assert "codes (500, 5, 4)" in run(tmp_path, "fit_on_arrays.py")


def test_every_example_is_tested():
    text = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f'"{path.name}"' in text
        assert f"python examples/{path.name}" in ast.get_docstring(ast.parse(path.read_text()))
