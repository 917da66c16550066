"""Closed forms of log Z against quadrature that is exact for polynomials, and base measures."""

import itertools

import numpy as np
import pytest
from scipy import stats
from theory import capsule_moments
from theory.capsule_moments import (
    disjoint_log_partition,
    draw_independent_experts,
    expert_covariance,
    gaussian_partition,
)

from keras_capsule_poe.functions import CentredGaussian, SquashedGaussian, UniformBall


def covariance(experts, dim, seed=0):
    """A full covariance (J, E, J, E)."""
    factor = np.random.default_rng(seed).normal(size=(experts * dim, experts * dim))
    return (factor @ factor.T / (2 * experts)).reshape(experts, dim, experts, dim)


def by_quadrature(covariance, mean=0.0):
    """Z and P(on_j) by Gauss-Hermite nodes, exact for polynomials: the degree is 2 J.

    J + 1 nodes a dimension are exact up to the degree 2 J + 1.
    """
    experts, dim = covariance.shape[:2]
    nodes, weights = np.polynomial.hermite_e.hermegauss(experts + 1)
    size = experts * dim
    grid = np.array(list(itertools.product(nodes, repeat=size)))
    weight = np.prod(list(itertools.product(weights / weights.sum(), repeat=size)), axis=1)
    root = np.linalg.cholesky(covariance.reshape(size, size))
    squares = np.square(mean + (grid @ root.T).reshape(-1, experts, dim)).sum(axis=-1)
    odds = weight * np.prod(1 + squares, axis=1)
    return odds.sum(), odds @ (squares / (1 + squares)) / odds.sum()


SIZES = [(1, 3), (2, 3), (3, 2), (4, 1), (5, 1)]


@pytest.mark.parametrize("experts, dim", SIZES)
def test_overlapping_experts_against_quadrature(experts, dim):
    z, on = by_quadrature(covariance(experts, dim))
    found = gaussian_partition(covariance(experts, dim))
    # Up to 7776 positive terms in float64, and nodes known to 1e-15.
    assert found.log_partition == pytest.approx(np.log(z), abs=1e-11)
    np.testing.assert_allclose(found.on, on, rtol=1e-11)


@pytest.mark.parametrize("experts, dim", SIZES)
def test_affine_experts_against_quadrature(experts, dim):
    mean = np.random.default_rng(9).normal(size=(experts, dim))
    z, on = by_quadrature(covariance(experts, dim), mean)
    found = gaussian_partition(covariance(experts, dim), mean)
    assert found.log_partition == pytest.approx(np.log(z), abs=1e-11)  # as above
    np.testing.assert_allclose(found.on, on, rtol=1e-11)
    # Their own squares alone, without the paths from one mean to another, are not enough.
    blocks = covariance(experts, dim) + np.einsum("je,kf,jk->jekf", mean, mean, np.eye(experts))
    missing = abs(gaussian_partition(blocks).log_partition - np.log(z))
    assert missing > 1e-3 or experts == 1
    with pytest.raises(ValueError, match="`hidden_bias` must be of shape.*Received: shape"):
        gaussian_partition(covariance(experts, dim), mean[None])


# No factor at all; cyclic orders counted in one direction only; one factor of two too many.
@pytest.mark.parametrize("wrong", [lambda n: 1, lambda n: 2 ** (n - 1 - (n > 2)), lambda n: 2**n])
def test_wrong_cumulants_are_seen(wrong, monkeypatch):
    monkeypatch.setattr(capsule_moments, "cyclic_factor", wrong)
    z, _ = by_quadrature(covariance(3, 2))
    # The right ones agree to 1e-11.
    assert abs(gaussian_partition(covariance(3, 2)).log_partition - np.log(z)) > 1e-4


def test_uncorrelated_experts_are_a_product():
    blocks = covariance(4, 3) * np.eye(4)[:, None, :, None]
    traces = np.einsum("jeje->j", blocks)
    found = gaussian_partition(blocks)
    assert found.log_partition == pytest.approx(np.log1p(traces).sum(), rel=1e-13)
    np.testing.assert_allclose(found.on, traces / (1 + traces), rtol=1e-12)


def test_disjoint_experts_of_correlated_inputs_are_not_independent():
    kernel, c = np.zeros((2, 2, 1, 1)), np.eye(2)
    kernel[:, :, 0, 0] = np.eye(2)
    assert disjoint_log_partition(kernel, c, 1.0) == pytest.approx(2 * np.log(2))
    # E (1 + x^2)(1 + y^2) = 4 + 2 r^2 for Gaussian x and y of correlation r.
    r = 0.9
    covariance = np.array([[1.0, r], [r, 1.0]]).reshape(2, 1, 2, 1)
    found = gaussian_partition(covariance).log_partition
    assert found == pytest.approx(np.log(4 + 2 * r**2), rel=1e-12)


def disjoint(I=12, J=3, E=4, D=5):
    """Maps and coefficients of experts that share no input."""
    random = np.random.default_rng(1)
    own = np.eye(J)[np.arange(I) % J]
    return random.normal(size=(I, J, E, D)), own * random.uniform(0.5, 2, size=(I, 1))


@pytest.mark.parametrize(
    "base", [UniformBall(12, 5), SquashedGaussian(12, 5, length=1.5)], ids=repr
)
def test_disjoint_experts_under_any_independent_base(base):
    kernel, c = disjoint()
    closed = disjoint_log_partition(kernel, c, base)
    # The same by the covariance, which is zero between them.
    same = gaussian_partition(expert_covariance(kernel, c, base.variance)).log_partition
    assert closed == pytest.approx(same, rel=1e-12)
    x = np.asarray(base.draw(40_000, seed=0, dtype="float64"))
    z = np.einsum("ij,ijed,bid->bje", c, kernel, x, optimize=True)
    b = np.random.default_rng(2).normal(size=z.shape[1:])
    affine = disjoint_log_partition(kernel, c, base.variance, b)
    for receives, log_z in ((z, closed), (z + b, affine)):
        w = np.prod(1 + np.square(receives).sum(axis=-1), axis=-1)
        error = w.std() / w.mean() / np.sqrt(len(w))
        assert abs(np.log(w.mean()) - log_z) < 4 * error and error < 0.02


def test_the_covariance_of_experts_is_that_of_the_base_carried_up():
    kernel, _ = disjoint()
    c = np.random.default_rng(2).uniform(size=kernel.shape[:2])
    base = CentredGaussian.from_covariance(0.3 * np.eye(60).reshape(12, 5, 12, 5))
    np.testing.assert_allclose(
        base.of_experts(kernel, c).covariance, expert_covariance(kernel, c, 0.3), atol=1e-12
    )


def test_base_measures_are_what_they_say():
    ball = np.asarray(UniformBall(3, 4).draw(20_000, seed=0, dtype="float64"))
    lengths = np.linalg.norm(ball, axis=-1)
    # The share of the volume inside is uniform.
    assert stats.kstest(lengths.ravel() ** 4, "uniform").pvalue > 1e-3
    assert lengths.max() < 1
    squashed = SquashedGaussian(3, 4, length=0.5)
    for base in (UniformBall(3, 4), squashed):
        x = np.asarray(base.draw(20_000, seed=1, dtype="float64"))
        squares = np.square(x).mean(axis=(1, 2))
        error = squares.std() / np.sqrt(len(x))
        assert abs(squares.mean() - base.variance) < 4 * error
        assert abs(x.mean()) < 4 * x.std() / np.sqrt(x.size)
    zeta = np.asarray(squashed.latent.draw(20_000, seed=2))
    # Root mean square lengths: 60,000 of them are known to 0.2%.
    assert np.sqrt(np.square(zeta).sum(axis=-1).mean()) == pytest.approx(0.5, rel=0.01)
    shape = (2, 2, 2, 2)
    wanted = covariance(2, 2).reshape(shape)
    drawn = np.asarray(CentredGaussian.from_covariance(wanted).draw(50_000, seed=3))
    found = CentredGaussian.from_samples(drawn).covariance
    # Entries are of order one, and known to sqrt(2/50,000).
    np.testing.assert_allclose(found, wanted, atol=5 * np.sqrt(2 / 50_000) * wanted.max())


def test_draws_follow_the_seed():
    for base in (
        UniformBall(3, 4),
        SquashedGaussian(3, 4, 0.5),
        CentredGaussian(np.ones((3, 4, 2))),
    ):
        one, same, other = (np.asarray(base.draw(5, seed=s)) for s in (0, 0, 1))
        assert np.array_equal(one, same) and not np.array_equal(one, other)
        assert one.dtype == "float32" and str(base.inputs) in base.describe()


def test_what_has_no_closed_form_is_refused():
    kernel, c = disjoint()
    with pytest.raises(ValueError, match="Received: 12 shared inputs"):
        disjoint_log_partition(kernel, np.ones_like(c), 1.0)
    with pytest.raises(ValueError, match="`base` must have independent inputs"):
        disjoint_log_partition(kernel, c, CentredGaussian(np.ones((*kernel.shape[::3], 1))))
    with pytest.raises(ValueError, match="Received: shapes"):
        expert_covariance(kernel, c.T, 1.0)
    with pytest.raises(ValueError, match="12 experts at most. Received: 13"):
        gaussian_partition(np.eye(13).reshape(13, 1, 13, 1))
    with pytest.raises(ValueError, match="Received: shape"):
        gaussian_partition(np.eye(6))
    with pytest.raises(ValueError, match="zero between experts"):
        draw_independent_experts(covariance(2, 2), 3, seed=0)
    with pytest.raises(ValueError, match="`factor` must be finite"):
        CentredGaussian(np.ones((3, 4)))
    with pytest.raises(ValueError, match="symmetric"):
        CentredGaussian.from_covariance(np.arange(16.0).reshape(2, 2, 2, 2))
    with pytest.raises(ValueError, match="no negative eigenvalue"):
        CentredGaussian.from_covariance(-np.eye(4).reshape(2, 2, 2, 2))
    with pytest.raises(ValueError, match="`length` must be a number above 0"):
        SquashedGaussian(3, 4, length=0)
