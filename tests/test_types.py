"""The public API has type annotations, and a type checker of its users sees them.

Rejected: a public function, constructor or method without a type, a name that the stub of the
package lacks, a body that contradicts its annotations, and wrong calls in a program of a user.
"""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keras_capsule_poe

ROOT = Path(__file__).parents[1]
PACKAGES = ("functions", "data", "training", "registry", "sklearn")
METHODS = ("encode", "decode", "sample", "reconstruct", "fit")

USER = """\
import keras_capsule_poe as kcp
from keras_capsule_poe import CapsNet, RoutingLayer, data, functions, registry, training

right: list[str] = registry.names()
routing = functions.route([[[1.0]]], [[[[1.0]]]], agreement_scale=2.0)
images = data.load_images("digits", limit=100).train.head(10).images.shape
kcp.CapsulePoE(10, 16, use_routing_bias=True, name="experts")
training.train(registry.create("capsules"), "folder").metrics()

RoutingLayer("ten", 16)
RoutingLayer(10)
functions.squash([1.0], axis="last")
data.load_images("digits", limit="all")
data.load_images("digits").train.bottom(3)
training.train(registry.create("capsules"), 3)
kcp.NoSuchLayer
"""
WRONG = {
    10: "arg-type",
    11: "call-arg",
    12: "arg-type",
    13: "arg-type",
    14: "attr-defined",
    15: "arg-type",
    16: "attr-defined",
}


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


def test_a_type_checker_finds_the_mistakes_of_a_user_and_none_of_ours():
    pytest.importorskip("mypy")
    # It checks what the program imports, too: all modules that the stub names.
    command = [sys.executable, "-m", "mypy", "--no-pretty", "--no-error-summary", "-c", USER]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    found, ours = {}, [done.stderr] if done.stderr else []
    for line in done.stdout.splitlines():
        match = re.match(r"<string>:(\d+): error: .*\[([\w-]+)\]$", line)
        if match:
            found[int(match[1])] = match[2]
        elif ": error: " in line:
            ours.append(line)
    assert not ours
    assert found == WRONG, done.stdout
