"""Affine maps of images against SciPy's, one image at a time."""

import numpy as np
import pytest
from scipy import ndimage

from keras_capsule_poe.data.augmentation import affine_matrix, warp

RANDOM = np.random.default_rng(0)


def by_scipy(image, matrix, translation, size):
    """`warp` of one image, channel by channel, in float64."""
    inverse = np.linalg.inv(matrix)
    middle, target = ((np.array(sides) - 1) / 2 for sides in (image.shape[:2], size))
    offset = middle - inverse @ (target + translation)
    # "grid-constant" interpolates between edge and outside; "constant" would cut the edge off.
    options = {"order": 1, "mode": "grid-constant", "cval": 0.0, "output": np.float64}
    channels = np.moveaxis(image, -1, 0)
    return np.stack(
        [ndimage.affine_transform(one, inverse, offset, size, **options) for one in channels], -1
    )


@pytest.mark.parametrize("shape", [(28, 28, 1), (9, 14, 3), (5, 4, 2)])
@pytest.mark.parametrize("size", [None, (40, 40), (7, 30)])
def test_warp_is_scipys(shape, size):
    n = 8
    images = RANDOM.integers(0, 256, (n, *shape), dtype=np.uint8)
    matrices = affine_matrix(
        RANDOM.uniform(-180, 180, n), RANDOM.uniform(-1, 1, n), RANDOM.uniform(0.4, 2.5, (n, 2))
    )
    translations = RANDOM.uniform(-20, 20, (n, 2))
    found = warp(images, matrices, translations, size)
    assert found.dtype == np.float32
    for i in range(n):
        expected = by_scipy(images[i], matrices[i], translations[i], size or shape[:2])
        # float32 coordinates of about 40 are right to 4e-6, of up to 255 grey levels a pixel.
        np.testing.assert_allclose(found[i], expected, atol=0.01)


def test_a_quarter_turn_is_counter_clockwise():
    images = RANDOM.integers(0, 256, (1, 6, 6, 1), dtype=np.uint8)
    quarter = affine_matrix(np.array([90.0]), np.zeros(1), np.ones((1, 2)))
    turned = warp(images, quarter, np.zeros((1, 2)))
    np.testing.assert_allclose(turned[0, ..., 0], np.rot90(images[0, ..., 0]), atol=0.01)


def test_a_translation_by_whole_pixels_is_a_shift():
    images = RANDOM.integers(0, 256, (1, 6, 6, 1), dtype=np.uint8)
    moved = warp(images, np.eye(2)[np.newaxis], np.array([[2.0, -1.0]]))
    by_hand = np.zeros((6, 6))
    by_hand[2:, :-1] = images[0, :-2, 1:, 0]
    np.testing.assert_array_equal(moved[0, ..., 0], by_hand)


def test_the_parts_of_a_matrix():
    """Of (row, column): what lies higher leans right, scales are vertical and horizontal."""
    none = np.zeros(1)
    lean = affine_matrix(none, np.array([0.2]), np.ones((1, 2)))[0]
    np.testing.assert_allclose(lean @ [-10.0, 0.0], [-10.0, 2.0])
    scale = affine_matrix(none, none, np.array([[0.8, 1.2]]))[0]
    np.testing.assert_allclose(scale @ [10.0, 10.0], [8.0, 12.0])
    turn = affine_matrix(np.array([30.0]), none, np.ones((1, 2)))[0]
    np.testing.assert_allclose(turn @ [0.0, 1.0], [-0.5, np.sqrt(0.75)], atol=1e-12)


def test_scaled_first_sheared_second_turned_last():
    one = np.ones((1, 2))
    whole = affine_matrix(np.array([20.0]), np.array([0.1]), np.array([[0.9, 1.1]]))[0]
    turn = affine_matrix(np.array([20.0]), np.zeros(1), one)[0]
    lean = affine_matrix(np.zeros(1), np.array([0.1]), one)[0]
    np.testing.assert_allclose(whole, turn @ lean @ np.diag([0.9, 1.1]), atol=1e-12)
    wrong = lean @ turn @ np.diag([0.9, 1.1])
    assert np.abs(whole - wrong).max() > 0.01
