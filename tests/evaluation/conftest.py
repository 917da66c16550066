"""A small model with random maps, and random images for it."""

import numpy as np
import pytest

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
def model(small_product):
    return small_product()
