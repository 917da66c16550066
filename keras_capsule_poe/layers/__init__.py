"""Keras layers that several model families use."""

from keras_capsule_poe.layers.capsules import (
    BatchDropout,
    CapsuleLength,
    CapsuleMask,
    ConvCapsules,
    PrimaryCapsules,
    Squash,
    Standardize,
)
from keras_capsule_poe.layers.convolutions import (
    ConvDecoder,
    DenseDecoder,
    FastConv2D,
    FastConv2DTranspose,
)
from keras_capsule_poe.layers.routing import RoutingLayer, SelfAttentionRouting

__all__ = [
    "BatchDropout",
    "CapsuleLength",
    "CapsuleMask",
    "ConvCapsules",
    "ConvDecoder",
    "DenseDecoder",
    "FastConv2D",
    "FastConv2DTranspose",
    "PrimaryCapsules",
    "RoutingLayer",
    "SelfAttentionRouting",
    "Squash",
    "Standardize",
]
