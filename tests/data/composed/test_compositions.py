"""Compositions as pure functions: what they compose, and in which ranges."""

import numpy as np
import pytest
from scipy import stats

from keras_capsule_poe.data.composed import Overlapping, SideBySide, Translated, draw_partners

N = 600


@pytest.fixture(scope="module")
def digits():
    """Random images, each bright enough to be clipped in a pair, and ten uneven classes."""
    random = np.random.default_rng(0)
    images = random.integers(1, 256, (N, 28, 28, 1), dtype=np.uint8)
    labels = random.choice(10, N, p=np.arange(1, 11) / 55).astype(np.int64)
    return images, labels


def by_hand(image, shift, pad):
    (down, right) = shift
    margins = (pad + down, pad - down), (pad + right, pad - right), (0, 0)
    return np.pad(image, margins)


def test_translated_by_hand(digits):
    images, labels = digits
    batch = Translated()(images, labels, np.random.default_rng(1))
    assert batch["images"].shape == (N, 40, 40, 1) and batch["images"].dtype == np.uint8
    assert np.array_equal(batch["labels"], labels)
    for image, found, shift in zip(images, batch["images"], batch["shifts"]):
        assert np.array_equal(found, by_hand(image, shift, 6))


@pytest.mark.parametrize("most", [2, 6])
def test_every_shift_is_as_likely(digits, most):
    shifts = Translated(shift=most).draw(20_000, None, np.random.default_rng(0))["shifts"]
    cells = (2 * most + 1) ** 2
    counts = np.unique(shifts @ [100, 1], return_counts=True)[1]
    assert len(counts) == cells and (shifts.min(), shifts.max()) == (-most, most)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_pair_is_the_clipped_sum_of_its_digits(digits):
    images, labels = digits
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


def test_shapes_and_dtypes_of_pairs(digits):
    batch = Overlapping()(*digits, np.random.default_rng(0))
    assert {name: (array.shape, array.dtype.name) for name, array in batch.items()} == {
        "images": ((N, 36, 36, 1), "uint8"),
        "labels": ((N, 2), "int64"),
        "targets": ((N, 2, 36, 36, 1), "uint8"),
    }


def test_larger_shifts_than_the_pad_cut_edges_off(digits):
    images, labels = digits
    batch = Overlapping(shift=6)(images, labels, np.random.default_rng(0))
    assert batch["images"].shape == (N, 36, 36, 1)
    # Every pixel of these digits is ink, so that a digit that was cut has fewer.
    ink = (batch["targets"] > 0).sum(axis=(2, 3, 4))
    assert ink.max() == 28 * 28 and ink.min() == 26 * 26


@pytest.mark.parametrize("shift, overlap", [(4, 0.800), (6, 0.716)])
def test_the_boxes_overlap_by_four_fifths_as_in_the_paper(digits, shift, overlap):
    """The paper's 80% are of boxes of 28x28 pixels moved by up to 4; its code's 6 give less."""
    random = np.random.default_rng(0)
    drawn = Overlapping(shift=shift).draw(20_000, np.tile(digits[1], 34)[:20_000], random)
    apart = np.abs(drawn["shifts"] - drawn["partner_shifts"])
    shared = (28 - apart).prod(axis=1) / 28**2
    assert shared.mean() == pytest.approx(overlap, abs=5 * shared.std() / np.sqrt(20_000))


def test_no_pair_is_of_one_class(digits):
    _, labels = digits
    for seed in range(20):
        partners = draw_partners(labels, np.random.default_rng(seed))
        assert (labels[partners] != labels).all()


def test_partners_are_uniform_over_the_other_classes(digits):
    """Comparing images instead of labels, or drawing a class first, fails here."""
    _, labels = digits
    labels = labels[:40]
    random = np.random.default_rng(0)
    drawn = np.stack([draw_partners(labels, random) for _ in range(20_000)])
    for i in range(0, 40, 7):
        others = np.flatnonzero(labels != labels[i])
        counts = np.bincount(drawn[:, i], minlength=40)
        assert counts.sum() == counts[others].sum()
        assert stats.chisquare(counts[others]).pvalue > 1e-3


def test_side_by_side(digits):
    images, labels = digits
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
