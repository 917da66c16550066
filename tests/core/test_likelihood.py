"""Formulas against a model small enough to enumerate: every visible state, every on/off state.

Three visible capsules take one of four values each, 64 visible states in all; three experts are
on or off. The routing coefficients are fixed, where the model is an exact product of experts:
p(v) is proportional to prod_j (1 + |z_j|^2).
"""

import itertools

import numpy as np
import pytest

from keras_capsule_poe.functions import (
    BlockMaps,
    CapsuleUnits,
    EinsumMaps,
    contrastive_divergence,
    free_energy,
    probability,
)

I, J, D, E = 3, 3, 2, 2
VALUES = np.array([[0.0, 0.0], [0.6, 0.0], [0.0, -0.9], [-0.3, 0.4]])
VISIBLE = np.array([VALUES[list(state)] for state in itertools.product(range(4), repeat=I)])
ON = np.array(list(itertools.product((0, 1), repeat=J)))


@pytest.fixture
def model():
    """Maps (I, J, E, D) and coefficients (I, J)."""
    random = np.random.default_rng(0)
    return 1.5 * random.normal(size=(I, J, E, D)), random.uniform(0.3, 1.5, size=(I, J))


@pytest.fixture
def data():
    """Twelve visible states, some of them equal."""
    return VISIBLE[np.random.default_rng(1).integers(len(VISIBLE), size=12)]


def collectives(v, w, c):
    return np.einsum("ij,ijed,bid->bje", c, w, v)


def joint(v, w, c):
    """exp(-E(v, on)) for all visible states v and all on/off states, (V, 2^J)."""
    energy = -np.log(np.sum(collectives(v, w, c) ** 2, axis=-1)) @ ON.T
    return np.exp(-energy)


def log_likelihood(w, c, data):
    """Exact mean log p(data), with both sums taken term by term."""
    partition = sum(joint(VISIBLE[1:], w, c).ravel()) + 1.0  # all-zero capsules: z = 0
    summed = [weights.sum() for weights in joint_or_one(data, w, c)]
    return np.mean(np.log(summed)) - np.log(partition)


def joint_or_one(v, w, c):
    """As `joint`; where all capsules are zero only the state with all experts off has weight."""
    empty = np.eye(len(ON))[0]
    return [joint(state[None], w, c)[0] if state.any() else empty for state in v]


def fourth_order_gradient(value, w, h=1e-3):
    """Central differences of order h^4 = 1e-12, in every entry of w."""
    gradient = np.zeros_like(w)
    for index in np.ndindex(w.shape):
        move = np.zeros_like(w)
        move[index] = h
        once, twice = ((value(w + k * move) - value(w - k * move)) / (2 * k * h) for k in (1, 2))
        gradient[index] = (4 * once - twice) / 3
    return gradient


def expectation(v, weights, w, c):
    """sum_v weight 2 c_ij z_j v_i^T/(1+|z_j|^2), from the library's functions."""
    per_state = weights[:, None, None] * c[None]
    score = CapsuleUnits().score(collectives(v, w, c))
    return np.asarray(EinsumMaps(w).correlation(per_state, score, v)[0])


def test_summing_over_the_experts_gives_the_free_energy(model):
    w, c = model
    summed = [weights.sum() for weights in joint_or_one(VISIBLE, w, c)]
    z = collectives(VISIBLE, w, c)
    # Eight positive terms in float64.
    np.testing.assert_allclose(np.exp(-np.asarray(free_energy(z))), summed, rtol=1e-12)
    np.testing.assert_allclose(np.prod(1 + np.sum(z**2, axis=-1), axis=-1), summed, rtol=1e-12)


def test_experts_are_independent_given_the_visible_capsules(model):
    w, c = model
    z = collectives(VISIBLE[1:], w, c)
    posterior = joint(VISIBLE[1:], w, c)
    posterior /= posterior.sum(axis=1, keepdims=True)
    p = np.asarray(probability(z))[:, None]
    product = np.prod(np.where(ON[None] == 1, p, 1 - p), axis=-1)
    # Products of three probabilities.
    np.testing.assert_allclose(posterior, product, rtol=1e-12)
    odds = np.log(posterior @ ON) - np.log(posterior @ (1 - ON))
    np.testing.assert_allclose(CapsuleUnits().log_odds(z), odds, rtol=1e-10, atol=1e-12)


def test_the_pull_is_the_mean_slope_of_the_energy_over_the_experts_states(model):
    """sum_on p(on|v) d(-E)/dW = 2 c z v^T/(1+|z|^2), state by state."""
    w, c = model
    for v in VISIBLE[[5, 27, 63]]:
        z = collectives(v[None], w, c)[0]
        posterior = joint(v[None], w, c)[0] / joint(v[None], w, c).sum()
        mean = np.zeros_like(w)
        for weight, on in zip(posterior, ON):
            for i, j in itertools.product(range(I), range(J)):
                # d log|z_j|^2 / dW_ij = 2 c_ij z_j v_i^T / |z_j|^2, where j is on.
                mean[i, j] += weight * on[j] * 2 * c[i, j] * np.outer(z[j], v[i]) / (z[j] @ z[j])
        ours = expectation(v[None], np.ones(1), w, c)
        np.testing.assert_allclose(ours, mean, rtol=1e-12, atol=1e-14)


def test_the_likelihood_is_normalised(model):
    w, c = model
    logs = [log_likelihood(w, c, state[None]) for state in VISIBLE]
    # 64 probabilities, each rounded.
    assert abs(np.sum(np.exp(logs)) - 1) < 1e-12


def test_data_term_minus_model_expectation_is_the_likelihood_gradient(model, data):
    w, c = model
    law = np.exp(-np.asarray(free_energy(collectives(VISIBLE, w, c))))
    law /= law.sum()
    observed = expectation(data, np.full(len(data), 1 / len(data)), w, c)
    hand = observed - expectation(VISIBLE, law, w, c)
    numeric = fourth_order_gradient(lambda w: log_likelihood(w, c, data), w)
    # h^4 = 1e-12 times fifth derivatives of up to 1e3, and rounding 1e-15/h; the gradient
    # itself is of order 0.1.
    assert np.abs(hand).max() > 0.05
    assert np.abs(hand - numeric).max() < 1e-9


@pytest.mark.parametrize("implementation", ["reference", "fused"])
def test_the_data_term_of_the_update_is_the_gradient_of_the_log_weight(implementation, model, data):
    w, c = model
    coefficients = np.repeat(c[None], len(data), axis=0)
    maps = {"reference": EinsumMaps, "fused": BlockMaps}[implementation](w)
    step = contrastive_divergence(maps, data, coefficients)
    score = CapsuleUnits().score(step.z_model) / len(data)
    model_term = EinsumMaps(w).correlation(coefficients, score, step.reconstruction)[0]
    numeric = fourth_order_gradient(
        lambda w: np.mean(np.log([weights.sum() for weights in joint_or_one(data, w, c)])), w
    )
    # As above.
    assert np.abs(np.asarray(step.gradient + model_term) - numeric).max() < 1e-9


def test_following_the_exact_gradient_raises_the_likelihood(model, data):
    w, c = model
    start = last = log_likelihood(w, c, data)
    for _ in range(60):
        law = np.exp(-np.asarray(free_energy(collectives(VISIBLE, w, c))))
        observed = expectation(data, np.full(len(data), 1 / len(data)), w, c)
        w = w + 0.3 * (observed - expectation(VISIBLE, law / law.sum(), w, c))
        now = log_likelihood(w, c, data)
        assert now > last
        last = now
    assert last > start + 0.1
