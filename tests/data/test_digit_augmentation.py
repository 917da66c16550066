"""The changes that Efficient-CapsNet is trained with, against SciPy, Pillow and by hand."""

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from keras_capsule_poe.data import augmentation as digit_augmentation
from keras_capsule_poe.data import load_images
from keras_capsule_poe.data.augmentation import efficient, erase, lanczos, move_ink, rotate, squeeze

N = 500


@pytest.fixture(scope="module")
def digits():
    """Digits of 16x16 pixels, somewhere in 28x28."""
    small = load_images("digits", image_size=16).train.images[:N]
    return np.pad(small, ((0, 0), (3, 9), (7, 5), (0, 0)))


@pytest.fixture
def random():
    return np.random.default_rng(1)


def test_rotate_is_scipys_by_whole_degrees_and_half_are_left(digits, random):
    turned = rotate(digits, random)
    assert turned.dtype == np.uint8
    angles = range(-29, 30)
    seen = []
    for image, found in zip(digits[:60, ..., 0], turned[..., 0]):
        each = [
            ndimage.rotate(image.astype(float), angle, reshape=False, order=1, mode="grid-constant")
            for angle in angles
        ]
        off = [np.abs(found - one).max() for one in each]
        # Rounded to whole grey levels.
        assert min(off) < 0.51
        seen.append(angles[int(np.argmin(off))])
    assert len(set(seen)) > 10 and min(seen) < -8 and max(seen) > 8
    left = (turned == digits).all(axis=(1, 2, 3)).mean()
    # Besides the half, angles below one degree: P(|N(0, .33)| < 1/30) = 0.08, of the other half.
    assert abs(left - 0.54) < 5 * 0.5 / np.sqrt(N)


def test_angles_are_normal():
    hand = np.zeros((29, 29, 1), np.uint8)
    hand[14, 15:] = 255  # from the middle to the right
    found = rotate(np.stack([hand] * 2000), np.random.default_rng(0))[..., 0].astype(float)
    y, x = np.mgrid[:29, :29] - 14.0
    across, down = ((found * axis).sum(axis=(1, 2)) for axis in (x, y))
    angles = np.degrees(np.arctan2(down, across))
    angles = angles[np.abs(angles) > 0.5]
    degrees = np.trunc(30 * 0.33 * np.random.default_rng(1).normal(size=10**6))
    expected = degrees[degrees != 0].std()
    # Four deviations, of the deviation of 900 normal angles.
    assert abs(angles.std() / expected - 1) < 0.09 and abs(angles.mean()) < 4 * expected / 30


def boxes(images):
    """First and last row, first and last column of each image's ink: (N, 4)."""
    ink = images.any(axis=-1)
    ends = []
    for axis in (2, 1):
        along = ink.any(axis=axis)
        ends += [along.argmax(axis=1), along.shape[1] - 1 - along[:, ::-1].argmax(axis=1)]
    return np.stack(ends, axis=1)


def test_ink_is_moved_as_a_whole_and_to_the_edges(digits):
    many = np.concatenate([digits] * 6)
    moved = move_ink(many, np.random.default_rng(0))
    before, after = boxes(many), boxes(moved)
    by = (after - before)[:, [0, 2]]
    assert ((after - before)[:, [1, 3]] == by).all()
    for image, found, shift in zip(many[:99], moved, by):
        assert np.array_equal(np.roll(image, shift, axis=(0, 1)), found)
    assert after.min() == 0 and after.max() == 27
    # From -before to +after: as often to either side, one step back at least if there is room.
    for axis, first in enumerate((0, 2)):
        room = before[:, first] > 0
        assert abs((by[room, axis] < 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(room.sum())


def test_images_without_ink_stay(random):
    dark = np.zeros((3, 28, 28, 1), np.uint8)
    for change in (rotate, move_ink, squeeze, erase, efficient):
        assert not change(dark, random).any()


@pytest.mark.parametrize("shorter", [21, 24, 27, 28])
def test_lanczos_is_pillows(digits, shorter):
    image = digits[0, ..., 0].astype(np.float32)
    picture = Image.fromarray(image).resize((shorter, 28), Image.Resampling.LANCZOS)
    # Pillow ends its kernel at whole pixels, too.
    np.testing.assert_allclose(image @ lanczos(28, shorter), np.asarray(picture), atol=1e-3)
    np.testing.assert_allclose(lanczos(28, shorter).sum(axis=0), 1, atol=1e-12)


def test_squeezed_images_are_lanczos_at_their_place(digits, random):
    squeezed = squeeze(digits, random)
    assert squeezed.dtype == np.uint8
    seen = set()
    for image, found in zip(digits[:60, ..., 0], squeezed[..., 0]):
        options = {}
        for narrower in range(1, 8):
            narrow = image @ lanczos(28, 28 - narrower)
            for beside in (0, 1):
                left = narrower // 2 + beside
                whole = np.pad(narrow, ((0, 0), (left, narrower - left)))
                options[narrower, beside] = np.abs(found - np.clip(whole, 0, 255)).max()
        best = min(options, key=options.get)
        # Rounded to whole grey levels, in float32.
        assert options[best] < 0.51
        seen.add(best)
    assert {narrower for narrower, _ in seen} >= {1, 2, 3, 4} and {0, 1} == {b for _, b in seen}


def test_a_square_is_erased(random):
    bright = np.full((4000, 28, 28, 2), 9, np.uint8)
    erased = erase(bright, random)
    gone = (erased == 0).all(axis=-1)
    assert (gone.sum(axis=(1, 2)) == 16).all() and set(np.unique(erased)) == {0, 9}
    for axis in (1, 2):
        along = gone.any(axis=3 - axis)
        assert (along.sum(axis=1) == 4).all()
        first = along.argmax(axis=1)
        assert (first.min(), first.max(), len(np.unique(first))) == (4, 22, 19)


@pytest.mark.parametrize("name", ["rotate", "move_ink", "squeeze", "erase", "efficient"])
def test_the_same_randomness_gives_the_same_images(digits, name):
    function = getattr(digit_augmentation, name)
    before = digits.copy()
    first, again, other = (function(digits, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first.shape == digits.shape and first.dtype == np.uint8
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(digits, before)
