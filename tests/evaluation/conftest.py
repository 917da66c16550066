"""A small model with random maps, and random images for it."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import (
    CapsuleDecoder,
    CapsuleEncoder,
    CapsulePoE,
    ConvAutoencoder,
    PrimaryCapsules,
    ProductOfExpertCapsules,
)
from keras_capsule_poe.data import ImageSet


def random_set(n, seed, labels=True):
    random = np.random.default_rng(seed)
    shown = random.integers(0, 256, (n, 20, 20, 1)).astype("uint8")
    return ImageSet(shown, random.integers(0, 2, n) if labels else None)


@pytest.fixture
def image_set():
    """Function of a number and a seed to an `ImageSet` of random pixels and two classes."""
    return random_set


@pytest.fixture(scope="package")
def model():
    keras.utils.set_random_seed(0)
    autoencoder = ConvAutoencoder(filters=8)
    autoencoder.build((None, 20, 20, 1))
    primary = PrimaryCapsules(4)
    primary.adapt([np.random.default_rng(0).normal(size=(9, *autoencoder.feature_shape))])
    options = {"kernel_initializer": keras.initializers.RandomNormal(stddev=0.5, seed=2)}
    encoder = CapsuleEncoder(CapsulePoE(3, 2, use_routing_bias=True, **options))
    decoder = CapsuleDecoder(CapsulePoE(primary.capsules, 4, **options), keep=1)
    product = ProductOfExpertCapsules(autoencoder, primary, encoder, decoder)
    product.build((None, 20, 20, 1))
    return product
