"""Keras models: autoencoders, products of expert capsules, RBMs and classifiers."""

from keras_capsule_poe.models.autoencoder import ConvAutoencoder
from keras_capsule_poe.models.boltzmann import ImageBoltzmannMachine
from keras_capsule_poe.models.capsnet import CapsNet
from keras_capsule_poe.models.capsule_poe import (
    CapsuleDecoder,
    CapsuleEncoder,
    ProductOfExpertCapsules,
)
from keras_capsule_poe.models.conv_classifier import ConvClassifier
from keras_capsule_poe.models.deep_belief import DeepBeliefNetwork
from keras_capsule_poe.models.harmonium import HarmoniumModel
from keras_capsule_poe.models.matrix_capsnet import MatrixCapsNet
from keras_capsule_poe.models.neurons import (
    NeuronExperts,
    NeuronMixtureExperts,
    ProductOfExpertNeurons,
)

__all__ = [
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
]
