"""Nearest neighbours against distances written out, and sets whose copies are known."""

import numpy as np
import pytest

from keras_capsule_poe.evaluation import distances as neighbours
from keras_capsule_poe.evaluation.distances import (
    memorisation,
    nearest_training_distance,
    neighbour_accuracy,
)

SHAPE = (6, 5, 2)


def images(n, seed=0):
    return np.random.default_rng(seed).integers(256, size=(n, *SHAPE)).astype("uint8")


def brute_force(x, y):
    """All distances in float64, (M, N)."""
    difference = x[:, None].astype("float64") - y[None].astype("float64") / 255
    return np.sqrt(np.square(difference).sum(axis=(2, 3, 4)))


@pytest.mark.parametrize("rows", [2000, 7])
def test_the_nearest_training_image_is_found(monkeypatch, rows):
    monkeypatch.setattr(neighbours, "ROWS", rows)
    train, pixels = images(40), np.random.default_rng(1).random((30, *SHAPE))
    distance, index = nearest_training_distance(pixels, train)
    every = brute_force(pixels, train)
    np.testing.assert_array_equal(index, every.argmin(axis=1))
    # Sixty squares in float32.
    np.testing.assert_allclose(distance, every.min(axis=1), rtol=1e-5)


def test_a_copy_is_at_distance_zero():
    train = images(50)
    chosen = np.array([3, 49, 0, 3])
    for copies in (train[chosen], train[chosen].astype("float32") / 255):
        distance, index = nearest_training_distance(copies, train)
        np.testing.assert_array_equal(index, chosen)
        # Exactly: not the square root of the rounding of two equal sums.
        np.testing.assert_array_equal(distance, 0)


def test_a_known_distance():
    black, one_pixel = np.zeros((1, *SHAPE), "uint8"), np.zeros((1, *SHAPE))
    one_pixel[0, 2, 3, 1] = 0.25
    assert nearest_training_distance(one_pixel, black)[0] == pytest.approx(0.25)


def test_copies_are_told_from_new_images():
    train, held_out, samples = images(300), images(300, seed=1), images(200, seed=2)
    samples[:50] = train[:50]
    found = memorisation(samples, nearest_training_distance(held_out, train)[0], train)
    every = [np.sort(brute_force(x / 255, train).min(axis=1)) for x in (samples, held_out)]
    medians = [np.median(x) for x in every]
    assert found["sample_distance"] == pytest.approx(medians[0], rel=1e-5)
    assert found["held_out_distance"] == pytest.approx(medians[1], rel=1e-5)
    assert found["relative_distance"] == pytest.approx(medians[0] / medians[1], rel=1e-5)
    # A quarter are copies; of the other 150 the 1% quantile takes in 1.5, six at most.
    assert 0.25 <= found["copies"] <= 0.28


def test_real_images_and_copies_are_the_two_ends():
    train = images(300)
    usual, _ = nearest_training_distance(images(300, seed=2), train)
    real = memorisation(images(300, seed=1), usual, train)
    # Of 300, three lie below a 1% quantile, give or take their spread and the quantile's own.
    assert real["copies"] < 0.04 and real["relative_distance"] == pytest.approx(1, abs=0.05)
    copied = memorisation(train, usual, train)
    assert (copied["copies"], copied["relative_distance"]) == (1, 0)
    assert memorisation(train, np.zeros(300), train)["relative_distance"] is None


def test_neighbour_accuracy_standardises():
    random = np.random.default_rng(0)
    labels = random.integers(2, size=400)
    # The first column tells the classes apart, the second is louder.
    x = np.stack([labels + 0.1 * random.normal(size=400), 1e4 * random.normal(size=400)], axis=1)
    assert neighbour_accuracy(x[:300], labels[:300], x[300:], labels[300:]) == 1


def test_neighbour_accuracy_is_the_vote_of_the_nearest():
    random = np.random.default_rng(0)
    x, y, labels, truth = (
        *(random.normal(size=(n, 3)) for n in (60, 50)),
        *(random.integers(2, size=n) for n in (60, 50)),
    )
    scaled, other = ((a - x.mean(0)) / x.std(0) for a in (x, y))
    order = np.linalg.norm(other[:, None] - scaled[None], axis=-1).argsort(axis=1)[:, :3]
    expected = np.mean((labels[order].mean(axis=1) > 0.5) == truth)
    assert neighbour_accuracy(x, labels, y, truth, neighbours=3) == pytest.approx(expected)


@pytest.mark.parametrize("shapes", [((2, 4, 4, 1), (3, 4, 4, 3)), ((2, 4, 4, 1), (0, 4, 4, 1))])
def test_images_that_cannot_be_compared_are_refused(shapes):
    with pytest.raises(ValueError, match="Received: shapes"):
        nearest_training_distance(*(np.zeros(shape) for shape in shapes))


def test_of_few_rows_all_are_neighbours():
    x, y = np.array([[0.0], [1.0], [1.1]]), np.array([0, 1, 1])
    assert neighbour_accuracy(x, y, x, y) == pytest.approx(2 / 3)
