"""Annealed importance sampling against enumeration and closed forms, forward and reverse.

At real size the closed forms are those of experts on disjoint inputs, and of eight overlapping
ones under a Gaussian base. Wrong versions that are named here are shown to miss them.
"""

import itertools

import keras
import numpy as np
import pytest
from keras import ops
from scipy.special import logsumexp
from theory.capsule_moments import (
    disjoint_log_partition,
    draw_independent_experts,
    expert_covariance,
    gaussian_partition,
)
from theory.partition import exact_log_partition

from keras_capsule_poe.core import likelihood
from keras_capsule_poe.core import mcmc as base_measures
from keras_capsule_poe.core.likelihood import log_mean
from keras_capsule_poe.core.mcmc import block_resampling, elliptical_slice, expert_log_weight
from keras_capsule_poe.core.numerics import StatelessSeed
from keras_capsule_poe.functions import (
    CapsuleUnits,
    CentredGaussian,
    EinsumMaps,
    Router,
    RoutingOptions,
    UniformBall,
    annealed_importance,
    free_energy,
    log_partition_bracket,
)

VALUES = 0.9 * np.array([[0, 0], [1, 0], [0, 1], [-0.8, 0.2], [0.3, -0.9]])


class Values:
    """A discretised ball: independent capsules, each one of five values."""

    inputs, dim = 4, 2

    def draw_capsules(self, n, capsules, seed, dtype=None):
        index = keras.random.randint((n, capsules), 0, len(VALUES), seed=seed)
        return ops.take(ops.convert_to_tensor(VALUES, dtype=dtype), index, axis=0)

    def draw(self, n, seed, dtype="float64"):
        return self.draw_capsules(n, self.inputs, seed, dtype)


def maps(scale=2.0):
    random = np.random.default_rng(0)
    kernel = scale * random.normal(size=(4, 3, 2, 2))
    return kernel, random.uniform(0.3, 1.5, size=(4, 3))


def linear(count):
    return np.linspace(0, 1, count + 1)


def test_one_step_is_importance_sampling():
    log_weight = expert_log_weight(*maps())
    start = Values().draw(200, seed=0)
    kernel = block_resampling(Values(), log_weight, 1)
    run = annealed_importance(log_weight, kernel, start, [0, 1], seed=1)
    plain = np.asarray(log_weight(start))
    np.testing.assert_allclose(run.log_weights, plain, rtol=1e-12)
    estimate = log_mean(run.log_weights)
    assert estimate.value == pytest.approx(np.log(np.exp(plain).mean()), rel=1e-12)
    w = np.exp(plain)
    assert estimate.error == pytest.approx(w.std(ddof=1) / w.mean() / np.sqrt(200), rel=1e-12)


def truth(kind):
    """log Z/Z_0 by enumeration, and the log weight."""
    kernel, c = maps()
    if kind == "fixed":
        exact = exact_log_partition(kernel, c, VALUES) - 4 * np.log(5)
        return exact, expert_log_weight(kernel, c)
    router = Router(
        EinsumMaps(kernel),
        RoutingOptions(routing_iterations=3, agreement_scale=5, coefficient_sum=2.0),
    )
    log_weight = expert_log_weight(kernel, router)
    states = np.array(list(itertools.product(VALUES, repeat=4)))
    return logsumexp(np.asarray(log_weight(states))) - 4 * np.log(5), log_weight


@pytest.mark.parametrize("kind", ["fixed", "routed"])
def test_the_discretised_ball_against_enumeration(kind):
    exact, log_weight = truth(kind)
    kernel = block_resampling(Values(), log_weight, 1)
    start = Values().draw(4000, seed=0)
    found = log_partition_bracket(log_weight, kernel, start, linear(20), seed=1)
    assert abs(found.forward - exact) < min(4 * found.forward_error, 0.04)
    # The ends are draws of P_1 only as far as the forward chains have come.
    assert abs(found.reverse - exact) < min(5 * found.reverse_error, 0.05)


def experts(J=3, E=3, variance=2.0):
    """Uncorrelated Gaussian experts, log Z, and draws of P."""
    identity = np.einsum("jk,ef->jekf", np.eye(J), np.eye(E)) * variance
    return identity, J * np.log1p(E * variance)


def gaussian_weight(z):
    return -free_energy(z)


def runs(betas, seed, chains=3000):
    """Log weights of chains up from exact draws of the base, and down from exact draws of P."""
    covariance, exact = experts()
    base = CentredGaussian.from_covariance(covariance)
    kernel = elliptical_slice(base, gaussian_weight)
    up = base.draw(chains, seed=seed, dtype="float64")
    down = draw_independent_experts(covariance, chains, seed + 1, dtype="float64")
    forward = annealed_importance(gaussian_weight, kernel, up, betas, seed + 2)
    reverse = annealed_importance(gaussian_weight, kernel, down, betas[::-1], seed + 3)
    return np.asarray(forward.log_weights), np.asarray(reverse.log_weights), exact


def test_short_runs_bracket_the_truth():
    """Estimates of three chains each: below the truth on average, and above it."""
    forward, reverse, exact = runs(linear(2), seed=0)
    low = np.log(np.exp(forward).reshape(-1, 3).mean(axis=1))
    high = -np.log(np.exp(reverse).reshape(-1, 3).mean(axis=1))
    for side, sign in ((low, 1), (high, -1)):
        assert sign * (exact - side.mean()) > 4 * side.std() / np.sqrt(len(side))
    # On the linear scale there is no bias, either way.
    for logs, log_ratio in ((forward, exact), (reverse, -exact)):
        ratio = np.exp(logs - log_ratio)
        assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(ratio))
    # More temperatures bring the sides together.
    longer = [log_mean(logs) for logs in runs(linear(16), seed=0)[:2]]
    assert longer[0].error < 0.5 * log_mean(forward).error
    assert longer[1].error < 0.5 * log_mean(reverse).error


def late(log_weight, kernel, gain, start, betas, seeds):
    """Wrong: the weight is that of the state after it moved, beta off by one step."""
    values = log_weight(start)
    states, total = start, 0.0
    betas = ops.cast(betas, values.dtype)
    for k in range(betas.shape[0] - 1):
        states, values = kernel(states, values, betas[k + 1], StatelessSeed(seeds[k, 0], k))
        total = total + gain(states, values, betas[k], betas[k + 1])
    return total, states, values


def test_weights_one_step_late_are_seen(monkeypatch):
    monkeypatch.setattr(likelihood, "anneal", late)
    forward, _, exact = runs(linear(4), seed=0)
    estimate = log_mean(forward)
    assert abs(estimate.value - exact) > 8 * estimate.error


# Real size

I, J, E, D = 560, 20, 16, 8


def disjoint(log_partition):
    """Maps of 20 experts on 28 inputs each, and coefficients, of about that log Z on the ball."""
    random = np.random.default_rng(0)
    c = np.eye(J, dtype="float32")[np.arange(I) % J]
    kernel = random.normal(size=(I, J, E, D)).astype("float32")
    share = np.expm1(log_partition / J) * (D + 2) / (I / J * E * D)
    return np.sqrt(share).astype("float32") * kernel, c


def on_the_ball(log_partition=20, units=None, chains=400, temperatures=30):
    kernel, c = disjoint(log_partition)
    base = UniformBall(I, D)
    log_weight = expert_log_weight(kernel, c, units or CapsuleUnits())
    step = block_resampling(base, log_weight, 64)
    start = base.draw(chains, seed=0)
    found = annealed_importance(log_weight, step, start, linear(temperatures), seed=1)
    return log_mean(found.log_weights), disjoint_log_partition(kernel, c, base.variance)


# Nats, and how well 400 chains over 30 temperatures know them: the first to 0.02 in any case.
@pytest.mark.parametrize(
    "log_partition, known",
    [
        pytest.param(2, 0.005, marks=pytest.mark.long),
        (20, 0.04),
        pytest.param(90, 0.06, marks=pytest.mark.long),
    ],
)
def test_disjoint_experts_on_the_ball(log_partition, known):
    found, closed = on_the_ball(log_partition)
    assert closed == pytest.approx(log_partition, rel=0.02)
    assert abs(found.value - closed) < 4 * found.error and found.error < known


@pytest.mark.some(2)
@pytest.mark.parametrize("wrong", ["radius", "length"])
def test_wrong_bases_and_weights_are_seen(wrong, monkeypatch):
    units = None
    if wrong == "radius":
        # Without the Jacobian of polar coordinates: lengths uniform, not volumes.
        monkeypatch.setattr(base_measures, "radius", lambda u, dim: u)
    else:
        units = Lengths()
    found, closed = on_the_ball(units=units)
    assert abs(found.value - closed) > 20 * max(found.error, 0.01)


class Lengths(CapsuleUnits):
    """Wrong: |z| for |z|^2."""

    def free_energy(self, z, axis=-1):
        return -ops.log1p(ops.sqrt(ops.sum(ops.square(z), axis=axis)))


@pytest.mark.long
def test_overlapping_experts_under_a_gaussian():
    """Eight experts of 16 dimensions on all of 576 inputs: log Z, and how often each is on."""
    random = np.random.default_rng(1)
    kernel = 0.03 * random.normal(size=(576, 8, E, D))
    c = random.uniform(0.3, 1.5, size=(576, 8))
    # Experts differ, and share a direction.
    kernel = kernel * np.linspace(0.1, 1, 8)[:, None, None] + 0.004 * random.normal(size=(1, D))
    covariance = expert_covariance(kernel, c, 0.1)
    exact = gaussian_partition(covariance)
    apart = np.log1p(np.einsum("jeje->j", covariance)).sum()
    assert exact.log_partition - apart > 0.2
    base = CentredGaussian.from_covariance(covariance)
    step = elliptical_slice(base, gaussian_weight)
    start = base.draw(3000, seed=0)
    run = annealed_importance(gaussian_weight, step, start, linear(80), seed=1)
    found = log_mean(run.log_weights)
    assert abs(found.value - exact.log_partition) < min(4 * found.error, 0.02)
    weights = np.exp(np.asarray(run.log_weights) - np.max(run.log_weights))
    p = np.asarray(CapsuleUnits().probability(run.states))
    on = weights @ p / weights.sum()
    errors = np.sqrt(np.square(weights) @ np.square(p - on)) / weights.sum()
    assert (np.abs(on - exact.on) < 4 * errors).all() and np.ptp(exact.on) > 0.1
    # The base itself is elsewhere.
    plain = np.asarray(CapsuleUnits().probability(start)).mean(axis=0)
    assert (np.abs(plain - exact.on) > 8 * errors).any()


def test_what_cannot_be_annealed_is_refused():
    log_weight = expert_log_weight(*maps())
    kernel = block_resampling(Values(), log_weight, 1)
    start = Values().draw(2, seed=0)
    for betas in ([1.0], [0, 0.5, 0.5], [0, 2], [[0, 1]], [0, float("nan")]):
        with pytest.raises(ValueError, match="`betas` must be two or more numbers"):
            annealed_importance(log_weight, kernel, start, betas, seed=0)
    with pytest.raises(ValueError, match="must rise from zero to one"):
        log_partition_bracket(log_weight, kernel, start, [1, 0], seed=0)
    with pytest.raises(ValueError, match=r"two chains or more.*Received: shape \(1,\)"):
        log_mean([0.0])


def test_equal_seeds_give_equal_runs():
    one, same, other = (runs(linear(2), seed=s, chains=20)[0] for s in (0, 0, 7))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def test_states_may_be_structures():
    """A state of two parts, one of which only counts steps."""

    def log_weight(state):
        return state["x"]

    def kernel(state, values, beta, seed):
        return {"x": state["x"], "steps": state["steps"] + 1}, values

    start = {"x": np.arange(3.0), "steps": np.zeros(3)}
    run = annealed_importance(log_weight, kernel, start, linear(4), seed=0)
    np.testing.assert_allclose(run.log_weights, np.arange(3.0))
    assert np.asarray(run.states["steps"]).tolist() == [4, 4, 4]


def test_the_mean_of_nothing_is_nothing():
    assert log_mean(np.full(3, -np.inf)) == (-np.inf, 0)
