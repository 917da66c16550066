"""Kernels that start at P_b stay there: enumerated models, and Gaussian ones of known laws.

Three visible capsules take one of four values each, drawn uniformly as their base; w is that of
two experts, with fixed coefficients or with coefficients routed from x. Each wrong version that is
named here is shown to leave the law, so that the tests can fail.
"""

import itertools

import keras
import numpy as np
import pytest
from keras import ops
from scipy import stats
from theory.capsule_moments import draw_independent_experts

from keras_capsule_poe.core import mcmc as kernels
from keras_capsule_poe.core.mcmc import block_resampling, elliptical_slice, expert_log_weight
from keras_capsule_poe.core.numerics import StatelessSeed, compiled
from keras_capsule_poe.functions import (
    CapsuleUnits,
    CentredGaussian,
    EinsumMaps,
    Router,
    RoutingOptions,
    SquashedGaussian,
    UniformBall,
    free_energy,
    squash,
)

I, J, D, E, CHAINS = 3, 2, 2, 2, 20_000
VALUES = np.array([[0.0, 0.1], [0.6, 0.0], [0.1, -0.9], [-0.3, 0.4]])
STATES = np.array(list(itertools.product(range(len(VALUES)), repeat=I)))


class Values:
    """A base of independent capsules, each one of `VALUES`."""

    inputs, dim = I, D

    def draw_capsules(self, n, capsules, seed, dtype=None):
        index = keras.random.randint((n, capsules), 0, len(VALUES), seed=seed)
        return ops.take(ops.convert_to_tensor(VALUES, dtype=dtype), index, axis=0)


def maps():
    """Maps (I, J, E, D), strong, and coefficients (I, J)."""
    random = np.random.default_rng(0)
    return 3 * random.normal(size=(I, J, E, D)), random.uniform(0.3, 1.5, size=(I, J))


def weight(kind, units=None):
    """log w as a kernel is given it, and of every state."""
    kernel, c = maps()
    if kind == "routed":
        # Sharp enough that the coefficients are far from alike.
        c = Router(
            EinsumMaps(kernel),
            RoutingOptions(routing_iterations=3, agreement_scale=5, coefficient_sum=2.0),
        )
    log_weight = expert_log_weight(kernel, c, units or CapsuleUnits())
    return log_weight, np.asarray(log_weight(VALUES[STATES]))


def law(values, beta):
    p = np.exp(beta * values)
    return p / p.sum()


def walked(kernel, log_weight, x, beta, steps):
    """States after some steps of a kernel."""

    def walk(x, values, beta):
        seed = StatelessSeed(steps, 1)

        def body(k, state):
            return kernel(*state, beta, seed.later(k))

        return ops.fori_loop(0, steps, body, (x, values))

    walk, x = compiled(walk), ops.convert_to_tensor(x)
    return np.asarray(walk(x, log_weight(x), ops.cast(beta, x.dtype))[0])


def variation(x, p):
    """Total variation between where chains are and p."""
    nearest = np.abs(x[:, :, None] - VALUES).sum(axis=-1).argmin(axis=-1)
    index = nearest @ len(VALUES) ** np.arange(I)[::-1]
    return np.abs(np.bincount(index, minlength=len(p)) / len(x) - p).sum() / 2


def floor(p):
    """What the total variation of as many independent draws of p is, on average."""
    return np.sqrt(2 / np.pi * p * (1 - p) / CHAINS).sum() / 2


def drift(log_weight, values, beta, blocks, steps):
    """Floors that chains, started at p_b of the log weights `values`, are away from it after."""
    p = law(values, beta)
    start = VALUES[STATES[np.random.default_rng(1).choice(len(p), CHAINS, p=p)]]
    kernel = block_resampling(Values(), log_weight, blocks)
    return variation(walked(kernel, log_weight, start, beta, steps), p) / floor(p)


@pytest.mark.some(5)
@pytest.mark.parametrize("steps", [1, pytest.param(4, marks=pytest.mark.long), 16])
@pytest.mark.parametrize(
    "kind, beta, blocks", [("fixed", 1, 1), ("routed", 1, 2), ("fixed", 0.4, 2)]
)
def test_block_resampling_stays_at_the_law(kind, beta, blocks, steps):
    # The variation of independent draws is one floor on average, and rarely 1.5.
    assert drift(*weight(kind), beta, blocks, steps) < 2


@pytest.mark.long
def test_block_resampling_reaches_the_law():
    """Standing still would pass the test above: chains that start at the base do not."""
    log_weight, values = weight("routed")
    p = law(values, 1)
    start = VALUES[np.random.default_rng(2).integers(len(VALUES), size=(CHAINS, I))]
    assert variation(start, p) > 10 * floor(p)
    kernel = block_resampling(Values(), log_weight, 1)
    assert variation(walked(kernel, log_weight, start, 1, 40), p) < 2 * floor(p)


class Lengths(CapsuleUnits):
    """Wrong: |z| for |z|^2."""

    def free_energy(self, z, axis=-1):
        return -ops.log1p(ops.sqrt(ops.sum(ops.square(z), axis=axis)))


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "wrong",
    [
        "beta",
        pytest.param("sign", marks=pytest.mark.long),
        pytest.param("no noise", marks=pytest.mark.long),
        "length",
        "frozen routing",
    ],
)
def test_wrong_acceptance_leaves_the_law(wrong, monkeypatch):
    log_weight, values = weight("routed")
    if wrong == "beta":
        monkeypatch.setattr(kernels, "log_acceptance", lambda new, old, beta: new - old)
    elif wrong == "sign":
        monkeypatch.setattr(kernels, "log_acceptance", lambda new, old, beta: beta * (old - new))
    elif wrong == "no noise":
        monkeypatch.setattr(kernels, "_log_uniform", lambda values, seed: 0 * values - 1e-9)
    elif wrong == "length":
        log_weight, _ = weight("routed", Lengths())
    else:
        log_weight, _ = weight("fixed")
    assert drift(log_weight, values, 0.4, 2, steps=16) > 4


@pytest.mark.parametrize("seed", range(3))
def test_one_expert_on_the_ball_has_the_law_of_its_quadrature(seed):
    """One input and z = a x: |x| has a density proportional to r^(D-1) (1 + a^2 r^2)."""
    a, dim = 3.0, 4
    base = UniformBall(1, dim)
    log_weight = expert_log_weight(a * np.eye(dim)[None, None], np.ones((1, 1)))
    start = base.draw(CHAINS, seed, dtype="float64")
    x = walked(block_resampling(base, log_weight, 1), log_weight, start, 1, 30)

    def cdf(r):
        mean = a**2 * dim / (dim + 2)
        return (r**dim + mean * r ** (dim + 2)) / (1 + mean)

    assert stats.kstest(np.linalg.norm(x[:, 0], axis=-1), cdf).pvalue > 1e-3
    assert stats.kstest(np.linalg.norm(start[:, 0], axis=-1), cdf).pvalue < 1e-6


def gaussian():
    """Two uncorrelated experts of three dimensions, alike in all of them: S_j = s_j 1."""
    variances = np.array([0.3, 4.0])
    identity = np.einsum("jk,ef->jekf", np.diag(variances), np.eye(3))
    return identity, variances


def cdf_of_squares(squares, variance, dim=3):
    """P(|z|^2 < t) under N(0, s 1)(1 + |z|^2)/Z: a mixture of two chi-squared laws."""
    mean = variance * dim
    plain, long = (stats.chi2.cdf(squares / variance, n) for n in (dim, dim + 2))
    return (plain + mean * long) / (1 + mean)


def p_values(z):
    """Of Kolmogorov and Smirnov, for the squares of both experts."""
    return [
        stats.kstest(np.square(z[:, j]).sum(axis=-1), cdf_of_squares, args=(variance,)).pvalue
        for j, variance in enumerate(gaussian()[1])
    ]


@pytest.mark.parametrize("seed", range(3))
def test_draws_of_independent_experts_have_their_law(seed):
    z = np.asarray(draw_independent_experts(gaussian()[0], CHAINS, seed))
    assert min(p_values(z)) > 1e-3
    # A Gaussian weighted by nothing, and one that is always long.
    plain = np.asarray(CentredGaussian.from_covariance(gaussian()[0]).draw(CHAINS, seed))
    assert max(p_values(plain)) < 1e-6


def test_draws_are_longer_along_directions_of_more_variance():
    covariance = np.zeros((1, 3, 1, 3))
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    variances = np.array([0.1, 1.0, 2.0])
    covariance[0, :, 0] = turn @ np.diag(variances) @ turn.T
    z = np.asarray(draw_independent_experts(covariance, 50_000, seed=0, dtype="float64"))
    # E z_e^2 (1 + |z|^2) = l_e (1 + sum l + 2 l_e), over 1 + sum l.
    expected = variances * (1 + variances.sum() + 2 * variances) / (1 + variances.sum())
    squares = np.square(z[:, 0] @ turn)
    errors = squares.std(axis=0) / np.sqrt(len(z))
    assert (np.abs(squares.mean(axis=0) - expected) < 4 * errors).all()


def gaussian_weight(z):
    return -free_energy(z)


@pytest.mark.parametrize("steps", [1, pytest.param(4, marks=pytest.mark.long), 16])
def test_elliptical_slices_stay_at_the_law(steps):
    covariance, _ = gaussian()
    start = draw_independent_experts(covariance, CHAINS, 5, dtype="float64")
    kernel = elliptical_slice(CentredGaussian.from_covariance(covariance), gaussian_weight)
    z = walked(kernel, gaussian_weight, start, 1, steps)
    assert min(p_values(z)) > 1e-3
    # Every chain moved.
    assert (z != np.asarray(start)).all(axis=(1, 2)).all()


@pytest.mark.some(2)
@pytest.mark.parametrize("wrong", ["no noise", "beta", "base"])
def test_wrong_slices_leave_the_law(wrong, monkeypatch):
    covariance, _ = gaussian()
    start = draw_independent_experts(covariance, CHAINS, 5, dtype="float64")
    beta = 0.5 if wrong == "beta" else 1
    if wrong == "no noise":
        monkeypatch.setattr(kernels, "_log_uniform", lambda values, seed: 0 * values)
    factor = 1.3 if wrong == "base" else 1
    base = CentredGaussian.from_covariance(factor * covariance)
    kernel = elliptical_slice(base, gaussian_weight)
    assert min(p_values(walked(kernel, gaussian_weight, start, beta, 6))) < 1e-6


@pytest.mark.long
def test_two_kernels_of_one_law_agree():
    """Squashed noise: blocks of x, and elliptical slices of what is squashed."""
    kernel, c = maps()
    base = SquashedGaussian(I, D, length=2.0)
    on_x = expert_log_weight(kernel, c)

    def on_zeta(zeta):
        return on_x(squash(zeta))

    start = base.draw(CHAINS // 2, seed=3, dtype="float64")
    x = walked(block_resampling(base, on_x, 1), on_x, start, 1, 40)
    start = base.latent.draw(CHAINS // 2, seed=4, dtype="float64")
    zeta = walked(elliptical_slice(base.latent, on_zeta), on_zeta, start, 1, 30)
    found = [np.asarray(on_x(chains)) for chains in (x, squash(zeta))]
    assert stats.ks_2samp(*found).pvalue > 1e-3
    assert stats.ks_2samp(np.asarray(on_x(squash(start))), found[0]).pvalue < 1e-6


def test_seeds_decide():
    log_weight, _ = weight("fixed")
    kernel = block_resampling(Values(), log_weight, 2)
    x = VALUES[STATES]
    one, same, other = (np.asarray(kernel(x, log_weight(x), 1.0, seed=s)[0]) for s in (0, 0, 1))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def test_what_cannot_be_sampled_is_refused():
    log_weight, _ = weight("fixed")
    with pytest.raises(ValueError, match="`blocks` must be at most 3.*Received: blocks=4"):
        block_resampling(Values(), log_weight, 4)
    with pytest.raises(ValueError, match="elliptical_slice. Received: base=CentredGaussian"):
        block_resampling(CentredGaussian(np.ones((I, D, 1))), log_weight, 1)
    with pytest.raises(ValueError, match="Received: base=UniformBall"):
        elliptical_slice(UniformBall(I, D), log_weight)
