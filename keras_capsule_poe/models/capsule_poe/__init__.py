"""The product of expert capsules: its encoder, its decoder and the whole model."""

from keras_capsule_poe.models.capsule_poe.decoder import CapsuleDecoder
from keras_capsule_poe.models.capsule_poe.encoder import CapsuleEncoder
from keras_capsule_poe.models.capsule_poe.product import ProductOfExpertCapsules

__all__ = ["CapsuleDecoder", "CapsuleEncoder", "ProductOfExpertCapsules"]
