"""Augmentations of the recipes, against arrays by hand and TensorFlow's image functions."""

import numpy as np
import pytest
from scipy import stats

from keras_capsule_poe.data import augmentation
from keras_capsule_poe.data.augmentation import (
    center,
    center_crop,
    cifar,
    flip,
    jitter,
    norb,
    random_crop,
    shift,
    standardize,
)

N = 400


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(1, 256, (N, 12, 10, 3), dtype=np.uint8)


@pytest.fixture
def random():
    return np.random.default_rng(1)


def shifts_by_hand(images, most):
    """Each image moved by every pair of whole pixels, dark ones coming in."""
    height, width = images.shape[1:3]
    framed = np.pad(images, ((0, 0), (most, most), (most, most), (0, 0)))
    return {
        (down, right): framed[
            :, most - down : most - down + height, most - right : most - right + width
        ]
        for down in range(-most, most + 1)
        for right in range(-most, most + 1)
    }


def test_shift_moves_by_each_of_25_as_often(images):
    many = np.concatenate([images] * 5)
    moved = shift(many, np.random.default_rng(0))
    assert moved.dtype == np.uint8 and moved.shape == many.shape
    same = [(moved == each).all(axis=(1, 2, 3)) for each in shifts_by_hand(many, 2).values()]
    counts = np.sum(same, axis=1)
    assert counts.sum() == len(many)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_random_crop_is_some_window(images, random):
    cropped = random_crop(images, random, 9)
    windows = {
        (top, left): (images[:, top : top + 9, left : left + 9] == cropped).all(axis=(1, 2, 3))
        for top in range(4)
        for left in range(2)
    }
    counts = [found.sum() for found in windows.values()]
    assert sum(counts) == N and min(counts) > 0


def test_a_center_crop_is_in_the_middle(images):
    assert np.array_equal(center_crop(images, 8), images[:, 2:10, 1:9])
    assert np.array_equal(center_crop(images, 10), images[:, 1:11])


@pytest.mark.parametrize("size", [0, 11])
def test_crops_larger_than_the_images_are_refused(images, random, size):
    for crop in (lambda: random_crop(images, random, size), lambda: center_crop(images, size)):
        with pytest.raises(ValueError, match=f"Received: size={size} of images of 12x10"):
            crop()


def test_half_of_the_images_are_mirrored(images, random):
    flipped = flip(images, random)
    mirrored = (flipped == images[:, :, ::-1]).all(axis=(1, 2, 3))
    untouched = (flipped == images).all(axis=(1, 2, 3))
    assert (mirrored ^ untouched).all() and flipped.dtype == np.uint8
    assert abs(mirrored.mean() - 0.5) < 5 * 0.5 / np.sqrt(N)


def test_jitter_is_brightness_then_contrast_around_the_mean(images, random):
    """TensorFlow's own, given what was drawn; contrast first, or around 128, differs."""
    import tensorflow as tf

    jittered = jitter(images[:30], random)
    again = np.random.default_rng(1)
    added, factors = again.uniform(-63, 63, 30), again.uniform(0.2, 1.8, 30)
    assert jittered.dtype == np.float32
    for image, found, add, factor in zip(images, jittered, added, factors):
        brighter = tf.image.adjust_brightness(tf.cast(image, tf.float32), add)
        expected = tf.image.adjust_contrast(brighter, factor)
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_ranges_of_jitter(random):
    images = np.tile(np.array([0, 255], np.uint8).reshape(1, 1, 2, 1), (4000, 1, 1, 1))
    jittered = jitter(images, random)[:, 0, :, 0]
    added, factors = jittered.mean(axis=1) - 127.5, np.ptp(jittered, axis=1) / 255
    for values, low, high in ((added, -63, 63), (factors, 0.2, 1.8)):
        width = high - low
        # The largest and the least of 4000 come within a hundredth of the ends.
        assert low - 1e-4 <= values.min() < low + width / 100
        assert high - width / 100 < values.max() <= high + 1e-4
        assert abs(values.mean() - (low + high) / 2) < 5 * width / np.sqrt(12 * 4000)


def test_standardize_is_tensorflows(images):
    import tensorflow as tf

    some = np.concatenate([images[:20], np.full((1, 12, 10, 3), 77, np.uint8)])
    expected = tf.image.per_image_standardization(tf.cast(some, tf.float32))
    found = standardize(some)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(found[:20].mean(axis=(1, 2, 3)), 0, atol=1e-5)
    assert standardize(images[:0]).shape == (0, 12, 10, 3)


def test_recipes(images, random):
    for made, size in (
        (cifar(images, random, 8), 8),
        (norb(images, random, 8), 8),
        (center(images, 8), 8),
    ):
        assert made.shape == (N, size, size, 3) and made.dtype == np.float32
        np.testing.assert_allclose(made.mean(axis=(1, 2, 3)), 0, atol=1e-4)
        np.testing.assert_allclose(made.std(axis=(1, 2, 3)), 1, atol=1e-3)


@pytest.mark.parametrize("name", ["shift", "flip", "jitter", "cifar", "norb"])
def test_the_same_randomness_gives_the_same_images(images, name):
    larger = np.tile(images[:20], (1, 3, 4, 1))
    function = getattr(augmentation, name)
    before = larger.copy()
    first, again, other = (function(larger, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(larger, before)
