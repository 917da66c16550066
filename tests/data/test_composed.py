"""Compositions as functions: what they compose, and in which ranges."""

import numpy as np
import pytest
from scipy import ndimage, stats

from keras_capsule_poe.data import (
    ImageSet,
    load_images,
)
from keras_capsule_poe.data.augmentation import affine_matrix, warp
from keras_capsule_poe.data.composed import (
    Affine,
    Overlapping,
    SideBySide,
    Translated,
    draw_partners,
)

N = 600


@pytest.fixture(scope="module")
def random_digits():
    """Random images, each bright enough to be clipped in a pair, and ten uneven classes."""
    random = np.random.default_rng(0)
    images = random.integers(1, 256, (N, 28, 28, 1), dtype=np.uint8)
    labels = random.choice(10, N, p=np.arange(1, 11) / 55).astype(np.int64)
    return images, labels


def by_hand(image, shift, pad):
    (down, right) = shift
    margins = (pad + down, pad - down), (pad + right, pad - right), (0, 0)
    return np.pad(image, margins)


def test_translated_by_hand(random_digits):
    images, labels = random_digits
    batch = Translated()(images, labels, np.random.default_rng(1))
    assert batch["images"].shape == (N, 40, 40, 1) and batch["images"].dtype == np.uint8
    assert np.array_equal(batch["labels"], labels)
    for image, found, shift in zip(images, batch["images"], batch["shifts"]):
        assert np.array_equal(found, by_hand(image, shift, 6))


@pytest.mark.parametrize("most", [2, 6])
def test_every_shift_is_as_likely(random_digits, most):
    shifts = Translated(shift=most).draw(20_000, None, np.random.default_rng(0))["shifts"]
    cells = (2 * most + 1) ** 2
    counts = np.unique(shifts @ [100, 1], return_counts=True)[1]
    assert len(counts) == cells and (shifts.min(), shifts.max()) == (-most, most)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_pair_is_the_clipped_sum_of_its_digits(random_digits):
    images, labels = random_digits
    composition, random = Overlapping(), np.random.default_rng(1)
    drawn = composition.draw(N, labels, random)
    batch = composition.compose(images, labels, np.arange(N), drawn)
    whole = batch["targets"].astype(int).sum(axis=1)
    # Sums that overflow, or that are scaled instead of clipped, differ here.
    assert (whole > 255).any()
    assert np.array_equal(batch["images"], np.minimum(whole, 255))
    shifts = np.stack([drawn["shifts"], drawn["partner_shifts"]], axis=1)
    rows = np.stack([np.arange(N), drawn["partners"]], axis=1)
    for target, both, chosen in zip(batch["targets"], shifts, rows):
        for i in range(2):
            assert np.array_equal(target[i], by_hand(images[chosen[i]], both[i], 4))
    assert np.array_equal(batch["labels"], labels[rows])


def test_shapes_and_dtypes_of_pairs(random_digits):
    batch = Overlapping()(*random_digits, np.random.default_rng(0))
    assert {name: (array.shape, array.dtype.name) for name, array in batch.items()} == {
        "images": ((N, 36, 36, 1), "uint8"),
        "labels": ((N, 2), "int64"),
        "targets": ((N, 2, 36, 36, 1), "uint8"),
    }


def test_larger_shifts_than_the_pad_cut_edges_off(random_digits):
    images, labels = random_digits
    batch = Overlapping(shift=6)(images, labels, np.random.default_rng(0))
    assert batch["images"].shape == (N, 36, 36, 1)
    # Every pixel of these digits is ink, so that a digit that was cut has fewer.
    ink = (batch["targets"] > 0).sum(axis=(2, 3, 4))
    assert ink.max() == 28 * 28 and ink.min() == 26 * 26


@pytest.mark.parametrize("shift, overlap", [(4, 0.800), (6, 0.716)])
def test_the_boxes_overlap_by_four_fifths_as_in_the_paper(random_digits, shift, overlap):
    """The paper's 80% are of boxes of 28x28 pixels moved by up to 4; its code's 6 give less."""
    random = np.random.default_rng(0)
    drawn = Overlapping(shift=shift).draw(20_000, np.tile(random_digits[1], 34)[:20_000], random)
    apart = np.abs(drawn["shifts"] - drawn["partner_shifts"])
    shared = (28 - apart).prod(axis=1) / 28**2
    assert shared.mean() == pytest.approx(overlap, abs=5 * shared.std() / np.sqrt(20_000))


def test_no_pair_is_of_one_class(random_digits):
    _, labels = random_digits
    for seed in range(20):
        partners = draw_partners(labels, np.random.default_rng(seed))
        assert (labels[partners] != labels).all()


def test_partners_are_uniform_over_the_other_classes(random_digits):
    """Comparing images instead of labels, or drawing a class first, fails here."""
    _, labels = random_digits
    labels = labels[:40]
    random = np.random.default_rng(0)
    drawn = np.stack([draw_partners(labels, random) for _ in range(20_000)])
    for i in range(0, 40, 7):
        others = np.flatnonzero(labels != labels[i])
        counts = np.bincount(drawn[:, i], minlength=40)
        assert counts.sum() == counts[others].sum()
        assert stats.chisquare(counts[others]).pvalue > 1e-3


def test_side_by_side(random_digits):
    images, labels = random_digits
    batch = SideBySide()(images, labels, np.random.default_rng(2))
    assert batch["images"].shape == (N, 28, 56, 1)
    assert np.array_equal(batch["images"][:, :, :28], images)
    assert (batch["labels"][:, 0] != batch["labels"][:, 1]).all()
    for right, label in zip(batch["images"][:50, :, 28:], batch["labels"][:50, 1]):
        (row,) = np.flatnonzero((images == right).all(axis=(1, 2, 3)))
        assert labels[row] == label


@pytest.mark.parametrize("composition", [Translated(), Overlapping(), SideBySide()])
def test_colour_and_other_sizes(composition):
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (4, 10, 12, 3), dtype=np.uint8)
    batch = composition(images, np.array([0, 1, 0, 1]), random)
    assert batch["images"].shape == (4, *composition.shape((10, 12, 3)))


@pytest.fixture(scope="module")
def digits():
    """Digits of 20x20 pixels in the middle of 28x28, as MNIST has them: they fit when enlarged."""
    small = load_images("digits", image_size=20).test
    return ImageSet(np.pad(small.images, ((0, 0), (4, 4), (4, 4), (0, 0))), small.labels)


@pytest.fixture(scope="module")
def batch(digits):
    return Affine()(digits.images, digits.labels, np.random.default_rng(0))


def test_shapes_and_dtypes(digits, batch):
    n = len(digits)
    assert {name: (array.shape, array.dtype.name) for name, array in batch.items()} == {
        "images": ((n, 40, 40, 1), "uint8"),
        "labels": ((n,), "int64"),
        "affine": ((n, 6), "float32"),
    }
    assert np.array_equal(batch["labels"], digits.labels)


def test_six_numbers_and_scipy_give_the_image_again(digits, batch):
    for image, found, numbers in zip(digits.images[:60], batch["images"], batch["affine"]):
        degrees, shear, vertical, horizontal, down, right = numbers.astype(float)
        angle = np.deg2rad(degrees)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        matrix = turn @ [[1, 0], [-shear, 1]] @ np.diag([vertical, horizontal])
        inverse = np.linalg.inv(matrix)
        offset = 13.5 - inverse @ (np.array([19.5, 19.5]) + [down, right])
        expected = ndimage.affine_transform(
            image[..., 0].astype(float), inverse, offset, (40, 40), order=1, mode="grid-constant"
        )
        # Half a grey level of rounding, and float32 numbers.
        np.testing.assert_allclose(found[..., 0], expected, atol=0.52)


def test_ranges_and_means(digits):
    """A uniform law's mean is within 5 deviations / sqrt(n) of its middle, and fills its range."""
    composition = Affine()
    n = 20_000
    drawn = composition.draw(n, None, np.random.default_rng(0))
    ranges = {"rotation": (-20, 20), "shear": (-0.2, 0.2), "scale": (0.8, 1.2), "place": (0, 1)}
    assert drawn.keys() == ranges.keys()
    for name, (low, high) in ranges.items():
        for values in drawn[name].reshape(n, -1).T:
            width = high - low
            assert low <= values.min() < low + width / 1000
            assert high - width / 1000 < values.max() <= high
            assert abs(values.mean() - (low + high) / 2) < 5 * width / np.sqrt(12 * n)
            assert values.std() == pytest.approx(width / np.sqrt(12), rel=0.02)


def test_no_ink_leaves_the_canvas_and_it_reaches_all_edges(digits, batch):
    numbers = batch["affine"].astype(float)
    matrices = affine_matrix(numbers[:, 0], numbers[:, 1], numbers[:, 2:4])
    wider = warp(digits.images, matrices, numbers[:, 4:], (60, 60))
    inside = wider[:, 10:50, 10:50]
    outside = np.abs(wider).sum(axis=(1, 2, 3)) - np.abs(inside).sum(axis=(1, 2, 3))
    # The numbers are stored as float32: at an edge 1e-6 of a pixel may lie beyond it.
    assert outside.max() < 0.1
    edges = [inside[:, 0], inside[:, -1], inside[:, :, 0], inside[:, :, -1]]
    assert all(edge.max() > 1 for edge in edges)


def test_translations_are_uniform_among_those(digits):
    """The same digit many times: from edge to edge, half of them on either side of the middle."""
    image = np.zeros((500, 28, 28, 1), np.uint8)
    image[:, 8:20, 10:18] = 255
    still = Affine(rotation=0, shear=0, scale=0)
    found = still(image, None, np.random.default_rng(0))["affine"][:, 4:]
    # Rows 8 to 19 of 28 lie at 14 to 25 of 40: 14 up and down; columns 16 to 23: 16 and 16.
    for moved, most in zip(found.T, (14, 16)):
        assert -most <= moved.min() < -0.97 * most and 0.97 * most < moved.max() <= most
        assert abs(moved.mean()) < 5 * 2 * most / np.sqrt(12 * 500)


def test_what_is_too_large_comes_to_the_middle():
    full = np.full((3, 28, 28, 1), 255, np.uint8)
    composition = Affine(pad=0)
    affine = composition(full, None, np.random.default_rng(0))["affine"]
    large = affine[:, 2:4].min(axis=1) > 1
    assert large.any() and np.abs(affine[large, 4:]).max() < 1e-5


def test_images_without_ink_and_without_labels():
    dark = Affine()(np.zeros((5, 28, 28, 3), np.uint8), None, np.random.default_rng(0))
    assert dark.keys() == {"images", "affine"}
    assert not dark["images"].any() and np.isfinite(dark["affine"]).all()
