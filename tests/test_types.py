"""The public API has type annotations. `test_wheel.py` has a type checker look at uses of it.

Rejected: a public function, constructor or method without a type, a name that the stub of the
package lacks, a body that contradicts its annotations, and a setting that is no typed keyword.
"""

import ast
import importlib
import inspect
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import keras_capsule_poe

ROOT = Path(__file__).parents[1]
PACKAGES = ("functions", "data", "training", "registry", "sklearn")
METHODS = ("encode", "decode", "sample", "reconstruct", "fit")


def public():
    for package in PACKAGES:
        module = importlib.import_module(f"keras_capsule_poe.{package}")
        for name in module.__all__:
            yield f"{package}.{name}", getattr(module, name)
    for name in keras_capsule_poe.__all__:
        yield name, getattr(keras_capsule_poe, name)


def signatures():
    """Public functions, constructors and the usual methods, those of base classes of ours, too."""
    for label, value in public():
        if inspect.isfunction(value):
            yield label, value
        elif inspect.isclass(value) and not issubclass(value, Exception):
            for method in ("__init__", *METHODS):
                found = inspect.unwrap(getattr(value, method, None) or object)
                # Named tuples and dataclasses have constructors without a file.
                if getattr(found, "__module__", "").startswith("keras_capsule_poe"):
                    if inspect.isfunction(found) and "/" in found.__code__.co_filename:
                        yield f"{label}.{method}", found


def bare(function):
    """Parameters without an annotation, and `return` if what it returns has none."""
    signature = inspect.signature(function)
    parts = {name: each.annotation for name, each in signature.parameters.items()}
    parts = {k: v for k, v in parts.items() if k not in ("self", "cls")}
    parts["return"] = signature.return_annotation
    return [name for name, annotation in parts.items() if annotation is inspect.Parameter.empty]


def test_signatures_are_annotated():
    wrong = {label: bare(function) for label, function in signatures()}
    assert len(wrong) > 100 and not {label: names for label, names in wrong.items() if names}


def test_the_stub_has_every_public_name_from_its_module():
    tree = ast.parse((ROOT / "keras_capsule_poe/__init__.pyi").read_text())
    homes = {
        alias.asname: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(homes) == {*keras_capsule_poe.__all__, *keras_capsule_poe._MODULES}
    for name, (module, original) in homes.items():
        assert name == original
        imported = getattr(importlib.import_module(module), name)
        assert imported is getattr(keras_capsule_poe, name)


@pytest.mark.long
def test_our_bodies_do_not_contradict_the_annotations():
    pytest.importorskip("mypy")
    # It checks what the program imports, too: all modules that the stub names.
    command = [sys.executable, "-m", "mypy", "-c", "import keras_capsule_poe"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stdout + done.stderr


def test_the_types_of_keywords_are_those_of_the_settings():
    """`python tools/keywords.py` writes them."""
    pytest.importorskip("ruff")
    written = runpy.run_path(str(ROOT / "tools/keywords.py"))
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(written["TARGET"])]
    options = {"capture_output": True, "text": True, "check": True, "cwd": ROOT}
    wanted = subprocess.run(command, input=written["source"](), **options).stdout
    assert written["TARGET"].read_text() == wanted
