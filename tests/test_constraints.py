"""`constraints.txt` fixes the version of all that an installation brings.

Rejected: a package that something requires and the file does not name, a version that
`requirements.txt` forbids, and a Python for which a package has no version, or two.
"""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def read(name):
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(text) for line in lines if (text := line.partition("#")[0].strip())]


def of_tests():
    """What `pip install '.[test]'` asks for beside `requirements.txt`."""
    (text,) = re.findall(r"^test = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)
    return [Requirement(name) for name in re.findall(r'^ *"([^"]+)"', text, re.M)]


def applies(requirement, **environment):
    return requirement.marker is None or requirement.marker.evaluate(environment)


def closure(requirements, versions):
    """Names of all that is required, directly or not.

    What a package requires is known where it is installed in its fixed version; a newer release
    may require something else.
    """
    seen, left = set(), [each for each in requirements if applies(each)]
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            if metadata.version(name) == versions.get(name):
                needed = map(Requirement, metadata.requires(name) or ())
                left += [each for each in needed if applies(each, extra=extra)]
    return {name for name, _ in seen}


def fixed(python):
    """Version by name, of the lines that apply to a Python on Linux."""
    found = {}
    for line in read("constraints.txt"):
        if not applies(line, python_version=python, python_full_version=f"{python}.0"):
            continue
        name = canonicalize_name(line.name)
        (version,) = line.specifier
        assert version.operator == "==" and "*" not in version.version, str(line)
        assert name not in found, f"{name} has two versions for Python {python}"
        found[name] = version.version
    return found


def test_it_names_all_that_is_required():
    versions = fixed(".".join(map(str, sys.version_info[:2])))
    wanted = closure([*read("requirements.txt"), *of_tests()], versions)
    assert len(wanted) > 20
    assert not {f"{name}=={metadata.version(name)}" for name in wanted - versions.keys()}


@pytest.mark.parametrize("python", PYTHONS)
def test_what_we_ask_for_is_satisfied(python):
    versions = fixed(python)
    for asked in [*read("requirements.txt"), *of_tests()]:
        if applies(asked, python_version=python, python_full_version=f"{python}.0"):
            assert versions[canonicalize_name(asked.name)] in asked.specifier, asked


def test_the_hooks_and_the_workflow_have_these_versions():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    (ruff,) = re.findall(r"ruff-pre-commit\n +rev: v([\d.]+)", hooks)
    assert {fixed(python)["ruff"] for python in PYTHONS} == {ruff}
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    (listed,) = re.findall(r"python: \[(.*)\]", workflow)
    assert tuple(re.findall(r'"([\d.]+)"', listed)) == PYTHONS


def test_the_citation_is_of_this_version():
    import keras_capsule_poe

    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    assert f"version: {keras_capsule_poe.__version__}" in lines
    assert "license: MIT" in lines
