"""Registration of this package's classes with Keras, after Keras is imported.

Keras finds the classes of a saved model only if their modules are imported. These modules import
TensorFlow, which takes seconds, so `import keras_capsule_poe` must not import them.
"""

import importlib
import importlib.abc
import importlib.util
import sys

_PACKAGE = __name__.rpartition(".")[0]


def register_with_keras(modules):
    """Import `modules`, which register their classes, now or right after Keras is imported."""
    if "keras" in sys.modules:
        _import(modules)
    else:
        sys.meta_path.insert(0, _AfterKeras(modules))


def _import(modules):
    for module in modules:
        importlib.import_module(module)


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Import hook that imports modules after Keras."""

    def __init__(self, modules):
        self._modules = modules

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("keras")
        # A module of this package that imports Keras registers its classes itself.
        if spec is None or any(module.startswith(f"{_PACKAGE}.") for module in _loading()):
            return spec
        run = spec.loader.exec_module

        def run_and_import(module):
            run(module)
            _import(self._modules)

        spec.loader.exec_module = run_and_import
        return spec


def _loading():
    """Yield the names of the modules whose import is in progress."""
    for name, module in list(sys.modules.items()):
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            yield name
