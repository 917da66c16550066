"""Images that are changed at random: what stays, what ranges there are, and the same twice.

Rejected: moves that wrap around, that are not of whole pixels, or that leave some of the moves
out; draws that depend on what was drawn before; a turn of all images; a digit that loses ink.
"""

import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe.data import batches
from keras_capsule_poe.data.augment import (
    _inside_margins,
    _moved,
    augmented,
    distorted,
    shifted,
    turned,
)

IMAGES = np.random.default_rng(0).integers(1, 256, size=(7, 12, 10, 2), dtype=np.uint8)


def stream(change, seed=3, epoch=0, step=0, epochs=2):
    """Batches of 3 of 7 images: three steps an epoch."""
    order = {"batch_size": 3, "seed": 1, "first_epoch": epoch, "first_step": step}
    found = batches((IMAGES, np.arange(7)), epochs=epochs, **order)
    return list(augmented(found, change, seed, first_step=3 * epoch + step))


@pytest.mark.parametrize("change", [shifted, distorted])
def test_the_same_seed_and_step_give_the_same_images(change):
    whole, again = stream(change), stream(change)
    resumed = stream(change, epoch=1, step=1)
    assert len(whole) == 6 and len(resumed) == 2
    for one, other in [*zip(whole, again), *zip(whole[4:], resumed)]:
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a, b)
    others = stream(change, seed=4)
    assert np.any(whole[0][0] != others[0][0])
    # The same images, in another epoch.
    first, second = (
        np.stack([image for _, image in sorted((int(n), np.asarray(x)) for b in part
                                               for x, n in zip(*b))])
        for part in (whole[:3], whole[3:])
    )  # fmt: skip
    assert first.shape == second.shape == (7, 12, 10, 2) and np.any(first != second)


def test_moves_are_of_whole_pixels_and_zeros_move_in():
    image = np.random.default_rng(1).uniform(0.1, 1, size=(6, 6, 1)).astype("float32")
    found = np.asarray(shifted(np.stack([image] * 600), seed=(0, 5), most=2))
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)))
    moves = {
        (dy, dx): padded[2 - dy : 8 - dy, 2 - dx : 8 - dx]
        for dy in range(-2, 3)
        for dx in range(-2, 3)
    }
    counts = dict.fromkeys(moves, 0)
    for shown in found:
        (which,) = [move for move, expected in moves.items() if np.array_equal(shown, expected)]
        counts[which] += 1
    # 24 of each are expected; a Poisson count is below 5 with a probability of 1e-6.
    assert min(counts.values()) >= 5


def digits(count):
    """Images with a blot of 8 x 6 pixels somewhere near the middle."""
    random = np.random.default_rng(2)
    images = np.zeros((count, 28, 28, 1), "float32")
    for image in images:
        y, x = random.integers(5, 15, 2)
        image[y : y + 8, x : x + 6] = random.uniform(0.5, 1, (8, 6, 1))
    return images


def test_half_of_the_images_are_turned_by_normal_angles():
    image = np.zeros((29, 29, 1), "float32")
    image[14, 15:] = 1  # a hand from the middle to the right
    found = np.asarray(turned(np.stack([image] * 2000), seed=(0, 1)))[..., 0]
    y, x = np.mgrid[:29, :29] - 14.0
    mass = found.sum(axis=(1, 2))
    angles = np.degrees(
        np.arctan2((found * y).sum(axis=(1, 2)) / mass, (found * x).sum(axis=(1, 2)) / mass)
    )
    is_turned = np.abs(angles) > 0
    # Four deviations of a share of 2000, and of the deviation of 1000 normal angles.
    assert abs(is_turned.mean() - 0.5) < 0.045
    assert abs(angles[is_turned].std() / (30 * 0.33) - 1) < 0.09


def test_moves_inside_the_margins_lose_no_ink():
    images = digits(400)
    moves = np.asarray(_inside_margins(tf.constant(images), seed=(0, 2)))
    moved = np.asarray(_moved(images, moves))
    np.testing.assert_allclose(moved.sum(axis=(1, 2, 3)), images.sum(axis=(1, 2, 3)), rtol=1e-5)
    assert moves.min() < -3 and moves.max() > 3 and (moves == 0).mean() > 0.02
    blank = np.zeros((3, 28, 28, 1), "float32")
    assert not np.any(_inside_margins(tf.constant(blank), seed=(0, 3)))


def test_distorted_digits_stay_in_range_and_become_narrower():
    images = digits(300)
    found = np.asarray(distorted(images, seed=(0, 4)))
    assert found.min() >= 0 and found.max() <= images.max() + 1e-5
    ratio = found.sum() / images.sum()
    # A mean width of 28 - 1 - 7 * 0.26 of 28 pixels, less what 16 pixels of 784 erase.
    assert 0.8 < ratio < 0.97
    bars = np.ones((200, 8, 28, 1), "float32")
    holes = np.asarray(distorted(np.ones((50, 28, 28, 1), "float32"), seed=(1, 1)))
    assert all((image[4:-4, 8:-8] == 0).sum() <= 16 for image in holes)
    assert np.asarray(distorted(bars, seed=(0, 0))).shape == bars.shape
