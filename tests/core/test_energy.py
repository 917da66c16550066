"""Log-odds, probability and free energy of experts against sums over their states."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe.functions import (
    BinaryUnits,
    CapsuleUnits,
    GaussianUnits,
    free_energy,
    probability,
)

log_odds, expert_free_energy = CapsuleUnits().log_odds, CapsuleUnits().free_energy


def damped(z):
    """Half the score, z/(1 + |z|^2)."""
    return CapsuleUnits().score(z) / 2


def experts(shape=(6, 4, 3), seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_known_values():
    z = np.array([[[3.0, 4.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, -2.0]]])
    # Logarithms and quotients of small integers, rounded.
    np.testing.assert_allclose(log_odds(z)[0, 0], np.log(25), rtol=1e-15)
    np.testing.assert_allclose(log_odds(z)[1], [0.0, np.log(4)], rtol=1e-15, atol=1e-15)
    np.testing.assert_allclose(probability(z), [[25 / 26, 0], [0.5, 0.8]], rtol=1e-15)
    np.testing.assert_allclose(expert_free_energy(z), -np.log([[26, 1], [2, 5]]), rtol=1e-15)
    np.testing.assert_allclose(free_energy(z), -np.log([26, 10]), rtol=1e-15)


def test_log_odds_of_the_zero_vector_is_the_least_finite_value():
    for dtype in ("float32", "float64"):
        got = float(log_odds(np.zeros((1, 4), dtype))[0])
        np.testing.assert_allclose(got, 2 * np.log(np.finfo(dtype).tiny), rtol=1e-6)


def test_the_probability_is_the_logistic_function_of_the_log_odds():
    z = experts()
    sigmoid = 1 / (1 + np.exp(-np.asarray(log_odds(z))))
    # exp(log) of numbers of order one.
    np.testing.assert_allclose(probability(z), sigmoid, rtol=1e-14)


def test_free_energy_sums_out_the_on_off_states_of_the_experts():
    z = experts()
    odds = np.log(np.sum(z**2, axis=-1))
    weights, on_weights = np.zeros(len(z)), np.zeros(z.shape[:2])
    for on in itertools.product((0, 1), repeat=z.shape[1]):
        weight = np.exp(np.sum(odds * np.array(on), axis=-1))  # exp(-E(x, on))
        weights += weight
        on_weights += weight[:, None] * np.array(on)
    # 16 positive terms in float64.
    np.testing.assert_allclose(free_energy(z), -np.log(weights), rtol=1e-13)
    # The share of the states in which an expert is on is its probability.
    np.testing.assert_allclose(probability(z), on_weights / weights[:, None], rtol=1e-13)


def test_the_gradient_of_the_free_energy_is_twice_the_damped_vector():
    z = tf.constant(experts() * np.logspace(-4, 4, 6)[:, None, None])
    with tf.GradientTape() as tape:
        tape.watch(z)
        energy = free_energy(z)
    # Two routes to the same fraction, a dozen float64 operations each.
    np.testing.assert_allclose(-tape.gradient(energy, z), 2 * np.asarray(damped(z)), rtol=1e-13)


def test_damped_known_values_and_bound():
    got = np.asarray(damped(np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1e-3]])))
    expected = [[3 / 26, 4 / 26], [0.5, 0], [0, 0], [0, 1e-3 / (1 + 1e-6)]]
    np.testing.assert_allclose(got, expected, rtol=1e-15)
    # r/(1+r^2) is the same at r and 1/r, and highest, 1/2, at one.
    size = np.logspace(-5, 5, 101)
    score = np.asarray(damped(size[:, None]))[:, 0]
    np.testing.assert_allclose(score, score[::-1], rtol=1e-12)
    assert score.argmax() == 50 and score.max() <= 0.5


def test_axis():
    z = experts()
    for function in (log_odds, probability, expert_free_energy):
        moved = function(np.moveaxis(z, -1, 1), axis=1)
        np.testing.assert_allclose(moved, function(z), rtol=1e-14)


@pytest.mark.parametrize(
    "units",
    [CapsuleUnits(), BinaryUnits(), GaussianUnits()],
    ids=lambda units: type(units).__name__,
)
@pytest.mark.parametrize("axis", [-1, 1])
def test_gradients_by_hand_are_those_of_autodiff(units, axis):
    # From the tenth of a unit to forty, where a binary unit's probability is 1e-17.
    z = tf.constant(experts() * np.logspace(-1, 1.6, 6)[:, None, None])
    for name in ("mean", "log_odds"):
        with tf.GradientTape() as tape:
            tape.watch(z)
            found = getattr(units, name)(z, axis)
        upstream = tf.constant(np.random.default_rng(1).normal(size=found.shape))
        expected = tape.gradient(found, z, upstream)
        ours = getattr(units, f"{name}_gradient")(z, upstream, axis)
        # Autodiff of 1 - exp(-e) loses digits where e is small.
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-13)
