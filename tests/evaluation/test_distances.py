"""Distances between sets of vectors, against known values and slow, plain forms."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from keras_capsule_poe.evaluation.distances import frechet_distance, kernel_distance


def vectors(n, k=6, seed=0, shift=0.0, scale=1.0):
    return shift + scale * np.random.default_rng(seed).normal(size=(n, k))


def test_frechet_distance_is_that_of_its_formula():
    x, y = vectors(50), vectors(70, seed=1, shift=0.5, scale=2.0) @ vectors(6, seed=2)
    c_x, c_y = np.cov(x.T), np.cov(y.T)
    expected = np.sum((x.mean(0) - y.mean(0)) ** 2)
    expected += np.trace(c_x + c_y - 2 * sqrtm(c_x @ c_y).real)
    # Both in float64; a square root of a product of covariances keeps about half the digits.
    assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-6)


def test_frechet_distance_of_known_gaussians():
    x = vectors(200)
    x = (x - x.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T))).T  # exactly standard
    assert frechet_distance(x, x) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(x, x + 3) == pytest.approx(6 * 9)
    # tr(1 + s^2 - 2 s) a dimension.
    assert frechet_distance(x, 3 * x) == pytest.approx(6 * (3 - 1) ** 2)


def test_frechet_distance_of_fewer_vectors_than_dimensions():
    x, y = vectors(5, k=20), vectors(4, k=20, seed=1)
    found = frechet_distance(x, y)
    assert found == pytest.approx(frechet_distance(y, x)) and np.isfinite(found) and found > 0


def test_kernel_distance_is_the_unbiased_estimate():
    x, y = vectors(12), vectors(12, seed=1, shift=0.3)

    def kernel(a, b):
        return (a @ b / 6 + 1) ** 3

    pairs = [(i, j) for i in range(12) for j in range(12) if i != j]
    expected = np.mean([kernel(x[i], x[j]) + kernel(y[i], y[j]) for i, j in pairs])
    expected -= 2 * np.mean([kernel(a, b) for a in x for b in y])
    mean, _ = kernel_distance(x, y)  # subsets of all vectors are all the same
    assert mean == pytest.approx(expected)


@pytest.mark.parametrize("n, size", [(60, 1000), (400, 50)])
def test_the_error_of_the_kernel_distance_is_the_spread_of_other_draws(n, size):
    """Rejects the spread of subsets that overlap, or are all the same, over their number."""
    found = [
        kernel_distance(vectors(n, seed=2 * s), vectors(n, seed=2 * s + 1, shift=0.5), size=size)
        for s in range(100)
    ]
    means, errors = np.transpose(found)
    # A deviation of 100 draws is known to 7%, and the jackknife's to 20 subsets.
    assert np.median(errors) == pytest.approx(means.std(ddof=1), rel=0.3)


def test_the_kernel_distance_needs_four_vectors():
    with pytest.raises(ValueError, match="four vectors or more. Received: 3"):
        kernel_distance(vectors(3), vectors(9))


def test_kernel_distance_is_about_zero_for_the_same_distribution_and_grows():
    mean, error = kernel_distance(vectors(3000), vectors(3000, seed=1), size=300)
    # The subsets overlap little: four standard errors.
    assert abs(mean) < 4 * error
    assert (
        kernel_distance(vectors(3000), vectors(3000, seed=1, shift=0.5), size=300)[0] > 10 * error
    )


@pytest.mark.parametrize("shapes", [((5, 3), (5, 2)), ((1, 3), (5, 3)), ((5,), (5,))])
def test_sets_that_cannot_be_compared_are_refused(shapes):
    with pytest.raises(ValueError, match="Received: shapes"):
        frechet_distance(*(np.zeros(shape) for shape in shapes))


@pytest.mark.parametrize("name", ["subsets", "size"])
def test_of_one_there_is_no_spread(name):
    x = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(ValueError, match=f"`{name}` must be an integer of at least 2"):
        kernel_distance(x, x, **{name: 1})
