"""Precision, recall, density and coverage, against their definitions."""

import tracemalloc

import numpy as np
import pytest

from keras_capsule_poe.evaluation import distances as module
from keras_capsule_poe.evaluation.distances import overlap, squared_radii


def vectors(n, k=6, seed=0, shift=0.0):
    return shift + np.random.default_rng(seed).normal(size=(n, k))


def brute_force(real, fake, k):
    def apart(x, y):
        return np.linalg.norm(x[:, None] - y[None], axis=-1)

    # The first of the sorted distances is a vector's own, to itself.
    of_real, of_fake = (np.sort(apart(x, x), axis=1)[:, k] for x in (real, fake))
    in_real = apart(real, fake) <= of_real[:, None]
    in_fake = apart(real, fake) <= of_fake[None]
    return {
        "precision": in_real.any(axis=0).mean(),
        "recall": in_fake.any(axis=1).mean(),
        "density": in_real.sum() / (k * len(fake)),
        "coverage": in_real.any(axis=1).mean(),
    }


@pytest.mark.parametrize("rows", [7, 1000])
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("sizes", [(40, 30), (30, 41)])
def test_each_is_that_of_its_definition(monkeypatch, sizes, k, rows):
    """Rejects the two sets exchanged, a vector as its own first neighbour, and lost blocks."""
    monkeypatch.setattr(module, "ROWS", rows)
    real, fake = vectors(sizes[0]), vectors(sizes[1], seed=1, shift=0.4)
    # Counts over whole numbers: equal but for the division.
    assert overlap(real, fake, k) == pytest.approx(brute_force(real, fake, k), rel=1e-12)


def test_radii_that_are_known_are_taken():
    real, fake = vectors(40), vectors(30, seed=1, shift=0.4)
    known = squared_radii(real, 3)
    assert overlap(real, fake, 3, known) == overlap(real, fake, 3)
    # Balls of twice the radius hold more.
    assert overlap(real, fake, 3, 4 * known)["density"] > overlap(real, fake, 3)["density"]


def test_precision_and_recall_are_each_other_with_the_sets_exchanged():
    real, fake = vectors(60), vectors(45, seed=1, shift=0.5)
    one, other = overlap(real, fake), overlap(fake, real)
    assert (one["precision"], one["recall"]) == (other["recall"], other["precision"])
    assert one["precision"] != one["recall"]


def test_collapse_loses_recall_and_noise_precision():
    real = vectors(1500)
    same = overlap(real, vectors(1500, seed=1))
    # Naeem et al.: for equal distributions density is 1 in the mean and coverage 1 - 1/2^k.
    assert same["density"] == pytest.approx(1, abs=0.1)
    assert same["coverage"] == pytest.approx(1 - 0.5**5, abs=0.03)
    assert min(same["precision"], same["recall"]) > 0.9
    collapsed = overlap(real, real[:1] + 1e-3 * vectors(1500, seed=2))
    assert collapsed["precision"] == 1 and collapsed["recall"] < 0.01
    assert collapsed["coverage"] < 0.02
    wide = overlap(real, 5 * vectors(1500, seed=3))
    assert wide["precision"] < 0.1 and wide["recall"] > 0.9
    assert set(overlap(real, vectors(1500, seed=1, shift=50)).values()) == {0}


def test_memory_is_that_of_a_block():
    """Rejected: a column of each block that keeps the block, 32 MB of all distances."""
    real, fake = vectors(2000), vectors(2000, seed=1)
    tracemalloc.start()
    try:
        overlap(real, fake)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A block of 128 rows is 2 MB, of which there are a few at once.
    assert most < 10e6


def test_sets_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="Received: shapes"):
        overlap(np.zeros((5, 3)), np.zeros((5, 2)))
