"""Keras layers that several model families use."""

from keras_capsule_poe.layers.capsules import (
    BatchDropout,
    CapsuleLength,
    CapsuleMask,
    Squash,
    Standardize,
)
from keras_capsule_poe.layers.conv_capsules import ConvCapsules
from keras_capsule_poe.layers.convolutions import FastConv2D, FastConv2DTranspose
from keras_capsule_poe.layers.decoders import ConvDecoder, DenseDecoder
from keras_capsule_poe.layers.primary_capsules import PrimaryCapsules
from keras_capsule_poe.layers.routing_layer import RoutingLayer
from keras_capsule_poe.layers.self_attention_routing import SelfAttentionRouting

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
