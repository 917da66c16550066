"""The examples in docstrings run, and nothing public is without one."""

import doctest
import importlib
import inspect
import pkgutil

import keras
import numpy
import pytest

import keras_capsule_poe

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


@pytest.mark.parametrize("name", sorted(modules()))
def test_examples_run(name, capsys, monkeypatch):
    # An example registers a family, which no later test should see.
    monkeypatch.setattr("keras_capsule_poe.registry._registered", {})
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for test in examples(name):
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
                yield pytest.param(value, id=f"{package or 'keras_capsule_poe'}.{name}")


@pytest.mark.parametrize("value", list(public()))
def test_everything_public_has_an_example(value):
    assert ">>>" in (inspect.getdoc(value) or ""), "its docstring has no example"
