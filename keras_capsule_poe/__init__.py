"""Capsule networks, products of expert capsules and restricted Boltzmann machines for Keras.

Importing this package is quick, because it imports Keras only at the first use of a name.
Importing Keras, before or after, registers the classes of this package for
`keras.models.load_model`.
"""

import importlib

from keras_capsule_poe import _registration

__version__ = "0.2.0"

_HOMES = {
    "callbacks": ("SpreadMargin",),
    "layers": (
        "CapsuleLength",
        "CapsuleMask",
        "CapsulePoE",
        "ConvCapsules",
        "ConvDecoder",
        "ConvEMCapsules",
        "DenseDecoder",
        "EMCapsules",
        "ExpertFrames",
        "FastConv2D",
        "FastConv2DTranspose",
        "NeuronMixture",
        "NeuronPoE",
        "PrimaryCapsules",
        "PrimaryMatrixCapsules",
        "RestrictedBoltzmannMachine",
        "RoutingLayer",
        "SelfAttentionRouting",
        "Squash",
        "Standardize",
    ),
    "losses": ("MarginLoss", "SpreadLoss"),
    "metrics": ("ExpertUsage", "OrientationConcentration", "RelativeError", "relative_error"),
    "models": (
        "CapsNet",
        "CapsuleDecoder",
        "CapsuleEncoder",
        "ConvAutoencoder",
        "ConvClassifier",
        "DeepBeliefNetwork",
        "HarmoniumModel",
        "ImageBoltzmannMachine",
        "MatrixCapsNet",
        "NeuronExperts",
        "NeuronMixtureExperts",
        "ProductOfExpertCapsules",
        "ProductOfExpertNeurons",
    ),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = (
    "callbacks",
    "data",
    "evaluation",
    "families",
    "functions",
    "generation",
    "layers",
    "losses",
    "metrics",
    "models",
    "serving",
    "training",
)

__all__ = [*_MODULE_OF, *_MODULES]

_registration.register_with_keras([f"{__name__}.{module}" for module in _HOMES])


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
