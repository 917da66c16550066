"""Keras models: the autoencoder, the capsule encoder and decoder, and the whole product."""

from keras_capsule_poe.models.autoencoder import ConvAutoencoder
from keras_capsule_poe.models.capsule_poe import (
    CapsuleDecoder,
    CapsuleEncoder,
    ProductOfExpertCapsules,
)

__all__ = ["CapsuleDecoder", "CapsuleEncoder", "ConvAutoencoder", "ProductOfExpertCapsules"]
