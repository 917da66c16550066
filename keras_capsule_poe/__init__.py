"""Products of expert capsules: capsule layers trained without labels by contrastive divergence.

`import keras_capsule_poe` is quick: TensorFlow is imported when a name is first used.
"""

import importlib

__version__ = "0.1.0"

_HOMES = {
    "layers": ("CapsulePoE", "ExpertFrames", "PrimaryCapsules", "RoutingLayer"),
    "models": ("CapsuleDecoder", "CapsuleEncoder", "ConvAutoencoder", "ProductOfExpertCapsules"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}
_SUBPACKAGES = ("data", "functions", "layers", "models", "training")

__all__ = [*_MODULE_OF, *_SUBPACKAGES]


def __getattr__(name):
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
