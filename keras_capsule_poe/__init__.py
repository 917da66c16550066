"""Products of expert capsules: capsule layers trained without labels by contrastive divergence.

`import keras_capsule_poe` is quick: Keras is imported when a name is first used. Once Keras is
imported too, before or after, `keras.models.load_model` knows the classes of this package.
TensorFlow's start-up messages are off, unless TF_CPP_MIN_LOG_LEVEL is set.
"""

import importlib

from keras_capsule_poe import _startup

__version__ = "0.2.0"

_startup.prepare()

_HOMES = {
    "callbacks": ("SpreadMargin",),
    "explorer": ("explore",),
    "layers.capsules": (
        "CapsuleLength",
        "CapsuleMask",
        "ConvCapsules",
        "PrimaryCapsules",
        "Squash",
        "Standardize",
    ),
    "layers.convolutions": (
        "ConvDecoder",
        "DenseDecoder",
        "FastConv2D",
        "FastConv2DTranspose",
    ),
    "layers.routing": (
        "RoutingLayer",
        "SelfAttentionRouting",
    ),
    "losses": (
        "MarginLoss",
        "SpreadLoss",
    ),
    "metrics": (
        "ExpertUsage",
        "OrientationConcentration",
        "RelativeError",
        "relative_error",
    ),
    "models.base.autoencoder": ("ConvAutoencoder",),
    "models.base.supervised": ("ConvClassifier",),
    "models.boltzmann.images": ("ImageBoltzmannMachine",),
    "models.boltzmann.layers": ("RestrictedBoltzmannMachine",),
    "models.boltzmann.model": ("HarmoniumModel",),
    "models.capsnet.model": ("CapsNet",),
    "models.capsule_poe.decoder": ("CapsuleDecoder",),
    "models.capsule_poe.encoder": ("CapsuleEncoder",),
    "models.capsule_poe.layers": (
        "CapsulePoE",
        "ExpertFrames",
        "Whitening",
    ),
    "models.capsule_poe.product": ("ProductOfExpertCapsules",),
    "models.matrix_capsules.layers": (
        "ConvEMCapsules",
        "EMCapsules",
        "PrimaryMatrixCapsules",
    ),
    "models.matrix_capsules.model": ("MatrixCapsNet",),
    "models.neurons.experts": (
        "NeuronExperts",
        "NeuronMixtureExperts",
    ),
    "models.neurons.layers": (
        "NeuronMixture",
        "NeuronPoE",
    ),
    "models.neurons.product": ("ProductOfExpertNeurons",),
    "pretrained": ("load", "pretrained_names", "train"),
    "runs": ("results", "sweep"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = (
    "callbacks",
    "core",
    "data",
    "evaluation",
    "functions",
    "layers",
    "losses",
    "metrics",
    "models",
    "plotting",
    "registry",
    "serving",
    "sklearn",
    "training",
)

# `from keras_capsule_poe import *` must not replace modules of Keras, such as `keras.layers`.
_NAMES_OF_KERAS = {"callbacks", "layers", "losses", "metrics", "models"}

__all__ = [*_MODULE_OF, *(name for name in _MODULES if name not in _NAMES_OF_KERAS)]

_startup.register_with_keras([f"{__name__}.{module}" for module in _HOMES])


def import_all():
    """Import all modules with classes that Keras must know to load a model."""
    for module in _HOMES:
        importlib.import_module(f"{__name__}.{module}")


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__, *_MODULES})
