"""Augmentations against TensorFlow, SciPy, Pillow and arrays by hand."""

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage, stats

from keras_capsule_poe.data import augmentation, load_images
from keras_capsule_poe.data.augmentation import (
    affine_matrix,
    center,
    center_crop,
    cifar,
    cut,
    efficient,
    erase,
    flip,
    jitter,
    lanczos,
    move_ink,
    norb,
    place,
    random_crop,
    rotate,
    shift,
    squeeze,
    standardize,
    warp,
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


def test_crops_larger_than_the_images_are_refused(images, random):
    for size in [0, 11]:
        with pytest.raises(ValueError, match=f"Received: size={size} of images of 12x10"):
            random_crop(images, random, size)
        with pytest.raises(ValueError, match=f"Received: size={size} of images of 12x10"):
            center_crop(images, size)


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


def test_the_same_randomness_gives_the_same_images(images):
    for name in ["shift", "flip", "jitter", "cifar", "norb"]:
        larger = np.tile(images[:20], (1, 3, 4, 1))
        function = getattr(augmentation, name)
        before = larger.copy()
        first, again, other = (function(larger, np.random.default_rng(seed)) for seed in (0, 0, 1))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
        assert np.array_equal(larger, before)


MANY = 500


@pytest.fixture(scope="module")
def digits():
    """Digits of 16x16 pixels, somewhere in 28x28."""
    small = load_images("digits", image_size=16).train.images[:MANY]
    return np.pad(small, ((0, 0), (3, 9), (7, 5), (0, 0)))


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
    # Besides the half, angles below one degree: P(|MANY(0, .33)| < 1/30) = 0.08, of the other half.
    assert abs(left - 0.54) < 5 * 0.5 / np.sqrt(MANY)


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
    """First and last row, first and last column of each image's ink: (MANY, 4)."""
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
    for image, found, moves in zip(many[:99], moved, by):
        assert np.array_equal(np.roll(image, moves, axis=(0, 1)), found)
    assert after.min() == 0 and after.max() == 27
    # From -before to +after: as often to either side, one step back at least if there is room.
    for axis, first in enumerate((0, 2)):
        room = before[:, first] > 0
        assert abs((by[room, axis] < 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(room.sum())


def test_images_without_ink_stay(random):
    dark = np.zeros((3, 28, 28, 1), np.uint8)
    for change in (rotate, move_ink, squeeze, erase, efficient):
        assert not change(dark, random).any()


def test_lanczos_is_pillows(digits):
    for shorter in [21, 24, 27, 28]:
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


def test_the_same_randomness_gives_the_same_digits(digits):
    for name in ["rotate", "move_ink", "squeeze", "erase", "efficient"]:
        function = getattr(augmentation, name)
        before = digits.copy()
        first, again, other = (function(digits, np.random.default_rng(seed)) for seed in (0, 0, 1))
        assert first.shape == digits.shape and first.dtype == np.uint8
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
        assert np.array_equal(digits, before)


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


def test_warp_is_scipys():
    for shape in [(28, 28, 1), (9, 14, 3), (5, 4, 2)]:
        for size in [None, (40, 40), (7, 30)]:
            n = 8
            images = RANDOM.integers(0, 256, (n, *shape), dtype=np.uint8)
            matrices = affine_matrix(
                RANDOM.uniform(-180, 180, n),
                RANDOM.uniform(-1, 1, n),
                RANDOM.uniform(0.4, 2.5, (n, 2)),
            )
            translations = RANDOM.uniform(-20, 20, (n, 2))
            found = warp(images, matrices, translations, size)
            assert found.dtype == np.float32
            for i in range(n):
                expected = by_scipy(images[i], matrices[i], translations[i], size or shape[:2])
                # float32 coordinates of about 40 are right to 4e-6, times 255 grey levels.
                np.testing.assert_allclose(found[i], expected, atol=0.01)


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


def drawn(shape=(6, 5, 4, 3)):
    return RANDOM.integers(1, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_place_pads_each_image_by_its_own_margins(channels):
    whole = drawn((7, 5, 4, channels))
    top, left = RANDOM.integers(0, 4, 7), RANDOM.integers(0, 6, 7)
    placed = place(whole, (8, 9), top, left)
    assert placed.dtype == np.uint8
    for image, found, up, side in zip(whole, placed, top, left):
        by_hand = np.pad(image, ((up, 3 - up), (side, 5 - side), (0, 0)))
        assert np.array_equal(found, by_hand)


def test_place_beyond_the_canvas_loses_what_lies_there():
    """As `np.roll` with what comes in from the other side made dark."""
    whole = drawn()
    for down, right in ((-2, 1), (3, -1), (0, 0), (-5, 0), (9, 9)):
        found = place(whole, (5, 4), np.full(6, down), np.full(6, right))
        by_hand = np.roll(whole, (down, right), axis=(1, 2))
        rows, columns = np.arange(5) - down, np.arange(4) - right
        from_inside = (rows >= 0) & (rows < 5), (columns >= 0) & (columns < 4)
        by_hand = by_hand * from_inside[0][:, None, None] * from_inside[1][:, None]
        assert np.array_equal(found, by_hand)


def test_cut_is_slicing():
    whole = drawn()
    top, left = RANDOM.integers(0, 3, 6), RANDOM.integers(0, 3, 6)
    found = cut(whole, (3, 2), top, left)
    for image, window, up, side in zip(whole, found, top, left):
        assert np.array_equal(window, image[up : up + 3, side : side + 2])


def test_what_is_placed_is_cut_out_again():
    whole = drawn()
    top, left = RANDOM.integers(0, 4, 6), RANDOM.integers(0, 4, 6)
    assert np.array_equal(cut(place(whole, (8, 8), top, left), (5, 4), top, left), whole)


def test_no_images():
    assert place(drawn()[:0], (8, 8), np.zeros(0, int), np.zeros(0, int)).shape == (0, 8, 8, 3)
