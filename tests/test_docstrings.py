"""The examples in docstrings run, and nothing public is without one."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import keras
import numpy
import pytest

import keras_capsule_poe

ROOT = Path(keras_capsule_poe.__path__[0])
# Packages whose `__all__` is public; of the classes, only those that users construct.
PACKAGES = ("functions", "data", "evaluation", "registry", "training", "sklearn")


def modules():
    for info in pkgutil.walk_packages(keras_capsule_poe.__path__, "keras_capsule_poe."):
        if not info.name.startswith("keras_capsule_poe.cli"):
            yield info.name


def examples(name):
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    # Examples may use whatever the package's door gives, as their readers would.
    known = {public: getattr(keras_capsule_poe, public) for public in keras_capsule_poe.__all__}
    known |= {"np": numpy, "keras": keras, "ops": keras.ops, "keras_capsule_poe": keras_capsule_poe}
    found = finder.find(module, extraglobs={**known, **vars(module)})
    return [test for test in found if test.examples]


# Examples that train or export for longer than three seconds; `make test-all` runs them.
LONG = ("product.ProductOfExpertCapsules", "product.ProductOfExpertCapsules.capsule_curve",
        "classifier.Classifier.from_recipe", "run.train", "runs.sweep", "portable.export_portable",
        "pretrained.train", "looking.Looking.nearest",
        "looking.Looking.outlier_scores")  # fmt: skip
PACKAGES_OF_MODULES = sorted({name.split(".")[1] for name in modules()})


@pytest.mark.parametrize(
    "package, is_long",
    [(name, False) for name in PACKAGES_OF_MODULES]
    + [pytest.param(name, True, marks=pytest.mark.long) for name in PACKAGES_OF_MODULES],
)
def test_examples_run(package, is_long, capsys, monkeypatch):
    # An example registers a family, which no later test should see.
    monkeypatch.setattr("keras_capsule_poe.registry._registered", {})
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for name in modules():
        for test in examples(name) if name.split(".")[1] == package else ():
            if test.name.endswith(tuple(f".{long}" for long in LONG)) == is_long:
                runner.run(test)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out


def public():
    for package in ("", *PACKAGES):
        module = importlib.import_module(f"keras_capsule_poe{package and '.'}{package}")
        for name in module.__all__:
            value = getattr(module, name)
            # A named tuple only holds results.
            is_class = inspect.isclass(value) and not issubclass(value, (tuple, Exception))
            is_class = is_class and package in ("", "functions", "sklearn")
            if is_class or inspect.isfunction(value):
                yield f"{package or 'keras_capsule_poe'}.{name}", value


def test_everything_public_has_an_example():
    values = dict(public())
    without = [name for name in values if ">>>" not in (inspect.getdoc(values[name]) or "")]
    assert len(values) > 80 and not without


# Words that say nothing of what a file holds.
_SMALL = set("a an all and for from in of on or return the them their to which whose with".split())


def first_words(node):
    """First line of a docstring, and the words in it that carry its meaning."""
    line = (ast.get_docstring(node) or "").partition("\n")[0]
    return line, set(re.findall(r"\w+", line.lower())) - _SMALL


def wrong_first_line(tree):
    """What is wrong with the first line of a module, or None."""
    line, words = first_words(tree)
    if not re.fullmatch(r"[A-Z`].*\.", line):
        return "it must be one sentence"
    parts = [node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    public = [node for node in parts if not node.name.startswith("_")]
    for node in public if len(public) > 1 else ():
        if words <= first_words(node)[1]:
            return f"it speaks of `{node.name}` alone"
    return None


def test_the_first_line_of_a_module_says_what_it_holds():
    """Rejected: a merged file whose first line is still that of one of its parts."""
    wrong = []
    for path in sorted([*ROOT.rglob("*.py"), *(ROOT.parent / "cli").rglob("*.py")]):
        problem = wrong_first_line(ast.parse(path.read_text()))
        if problem:
            wrong.append(f"{path.relative_to(ROOT.parent)}: {problem}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("x = 1", "one sentence"),
        ('"""no sentence"""', "one sentence"),
        ('"""Sum of rows."""\ndef a():\n "Return the sum of all rows."\ndef b(): 0', "`a` alone"),
    ],
)
def test_a_wrong_first_line_is_noticed(text, problem):
    assert problem in wrong_first_line(ast.parse(text))
