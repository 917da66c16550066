"""Keras layers of capsules."""

from keras_capsule_poe.layers.boltzmann import RestrictedBoltzmannMachine
from keras_capsule_poe.layers.capsule_length import CapsuleLength, CapsuleMask
from keras_capsule_poe.layers.capsule_poe import CapsulePoE
from keras_capsule_poe.layers.conv_capsules import ConvCapsules
from keras_capsule_poe.layers.convolutions import FastConv2D, FastConv2DTranspose
from keras_capsule_poe.layers.decoders import ConvDecoder, DenseDecoder
from keras_capsule_poe.layers.dropout import BatchDropout
from keras_capsule_poe.layers.em_capsules import ConvEMCapsules, EMCapsules
from keras_capsule_poe.layers.expert_frames import ExpertFrames
from keras_capsule_poe.layers.gaussian_mixtures import GaussianMixtures
from keras_capsule_poe.layers.matrix_capsules import PrimaryMatrixCapsules
from keras_capsule_poe.layers.neuron_mixture import NeuronMixture
from keras_capsule_poe.layers.neuron_poe import NeuronPoE
from keras_capsule_poe.layers.primary_capsules import PrimaryCapsules
from keras_capsule_poe.layers.routing_layer import RoutingLayer
from keras_capsule_poe.layers.self_attention_routing import SelfAttentionRouting
from keras_capsule_poe.layers.squash import Squash
from keras_capsule_poe.layers.standardize import Standardize

__all__ = [
    "BatchDropout",
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
    "GaussianMixtures",
    "NeuronMixture",
    "NeuronPoE",
    "PrimaryCapsules",
    "PrimaryMatrixCapsules",
    "RestrictedBoltzmannMachine",
    "RoutingLayer",
    "SelfAttentionRouting",
    "Squash",
    "Standardize",
]
