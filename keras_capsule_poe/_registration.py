"""Registers this package's classes with Keras as soon as Keras is there, and not before.

Keras finds a saved model's classes only if their modules were imported; but importing them here
would import TensorFlow, which takes seconds, with the first `import keras_capsule_poe`.
"""

import importlib
import importlib.abc
import importlib.util
import sys

_PACKAGE = __name__.rpartition(".")[0]


def register_with_keras(modules):
    """Imports `modules`, which register their classes, now or right after Keras is imported."""
    if "keras" in sys.modules:
        _import(modules)
    else:
        sys.meta_path.insert(0, _AfterKeras(modules))


def _import(modules):
    for module in modules:
        importlib.import_module(module)


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Finds Keras as Python does, and has modules imported after it."""

    def __init__(self, modules):
        self._modules = modules

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("keras")
        # Where a module of this package imports Keras, it is on its way to register.
        if spec is None or any(module.startswith(f"{_PACKAGE}.") for module in _loading()):
            return spec
        run = spec.loader.exec_module

        def run_and_import(module):
            run(module)
            _import(self._modules)

        spec.loader.exec_module = run_and_import
        return spec


def _loading():
    """Names of the modules whose import has begun and not ended."""
    for name, module in list(sys.modules.items()):
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            yield name
