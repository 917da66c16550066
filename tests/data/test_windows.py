"""Windows of whole pixels, against padding and slicing by hand."""

import numpy as np
import pytest

from keras_capsule_poe.data.augmentation import cut, place

RANDOM = np.random.default_rng(0)


def images(shape=(6, 5, 4, 3)):
    return RANDOM.integers(1, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_place_pads_each_image_by_its_own_margins(channels):
    whole = images((7, 5, 4, channels))
    top, left = RANDOM.integers(0, 4, 7), RANDOM.integers(0, 6, 7)
    placed = place(whole, (8, 9), top, left)
    assert placed.dtype == np.uint8
    for image, found, up, side in zip(whole, placed, top, left):
        by_hand = np.pad(image, ((up, 3 - up), (side, 5 - side), (0, 0)))
        assert np.array_equal(found, by_hand)


def test_place_beyond_the_canvas_loses_what_lies_there():
    """As `np.roll` with what comes in from the other side made dark."""
    whole = images()
    for down, right in ((-2, 1), (3, -1), (0, 0), (-5, 0), (9, 9)):
        found = place(whole, (5, 4), np.full(6, down), np.full(6, right))
        by_hand = np.roll(whole, (down, right), axis=(1, 2))
        rows, columns = np.arange(5) - down, np.arange(4) - right
        from_inside = (rows >= 0) & (rows < 5), (columns >= 0) & (columns < 4)
        by_hand = by_hand * from_inside[0][:, None, None] * from_inside[1][:, None]
        assert np.array_equal(found, by_hand)


def test_cut_is_slicing():
    whole = images()
    top, left = RANDOM.integers(0, 3, 6), RANDOM.integers(0, 3, 6)
    found = cut(whole, (3, 2), top, left)
    for image, window, up, side in zip(whole, found, top, left):
        assert np.array_equal(window, image[up : up + 3, side : side + 2])


def test_what_is_placed_is_cut_out_again():
    whole = images()
    top, left = RANDOM.integers(0, 4, 6), RANDOM.integers(0, 4, 6)
    assert np.array_equal(cut(place(whole, (8, 8), top, left), (5, 4), top, left), whole)


def test_no_images():
    assert place(images()[:0], (8, 8), np.zeros(0, int), np.zeros(0, int)).shape == (0, 8, 8, 3)
