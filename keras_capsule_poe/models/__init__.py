"""Keras models: the autoencoder, the capsule encoder and decoder, and the whole product."""

from keras_capsule_poe.models.autoencoder import ConvAutoencoder
from keras_capsule_poe.models.capsule_decoder import CapsuleDecoder
from keras_capsule_poe.models.capsule_encoder import CapsuleEncoder
from keras_capsule_poe.models.product import ProductOfExpertCapsules

__all__ = ["CapsuleDecoder", "CapsuleEncoder", "ConvAutoencoder", "ProductOfExpertCapsules"]
