"""Draws of a small layer, all of its states enumerated, and that Gibbs sampling leaves them.

Wrong versions that these tests reject, and `test_mutants` runs: the lower bits taken for the
upper ones, a field without the centre, and a sampler of independent neurons.
"""

import numpy as np
import pytest

from keras_capsule_poe.core.enumeration import binary_states, draw_states, state_log_weights
from keras_capsule_poe.functions import DenseMaps, gibbs_chain

NUMBER, NEURONS = 200_000, 8


def numbers(h):
    return np.asarray(h).astype(int) @ 2 ** np.arange(h.shape[1])


def distance(h, p):
    """Total variation of draws from p, and what it would be for exact ones on average."""
    counts = np.bincount(numbers(h), minlength=len(p)) / len(h)
    return np.abs(counts - p).sum() / 2, np.sqrt(p * (1 - p) / len(h)).sum() / 2


def law(log_weights):
    p = np.exp(log_weights - np.max(log_weights))
    return p / p.sum()


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("visible", ["gaussian", "bernoulli", "unit"])
def test_weights_are_those_of_the_energy(enumerated, visible, centred):
    model = enumerated(visible, neurons=2, hidden=3, centred=centred)
    found = np.asarray(state_log_weights(model.harmonium()))
    order = numbers(model.h)
    # Of h as they come, up to the constant that the quadrature's base energy has.
    gap = found[order] + model.hidden_free_energy()
    np.testing.assert_allclose(gap - gap[0], 0, atol=1e-8)


def laws(seed=0):
    """Two unlike laws over 2^8 states."""
    return 1.5 * np.random.default_rng(seed).normal(size=(2, 2**NEURONS))


def check_draws(draw, log_weights):
    groups = np.arange(NUMBER) % 2
    h = np.asarray(draw(log_weights, groups, seed=4))
    for group, weights in enumerate(log_weights):
        found, floor = distance(h[groups == group], law(weights))
        assert found < 4 * floor


def test_draws_are_of_their_laws():
    check_draws(draw_states, laws())


def test_draws_of_one_neuron():
    h = np.asarray(draw_states(np.log([[0.2, 0.8]]), np.zeros(20_000, int), seed=0))
    assert abs(h.mean() - 0.8) < 5 * np.sqrt(0.16 / 20_000)


@pytest.mark.parametrize("visible", ["gaussian", "bernoulli"])
def test_gibbs_sampling_leaves_exact_draws_as_they_are(enumerated, visible):
    model = enumerated(visible, neurons=3, hidden=NEURONS, scale=0.8)
    machine = model.harmonium()
    weights = np.asarray(state_log_weights(machine))
    number = 50_000
    h = draw_states(weights[None], np.zeros(number, int), seed=2)
    # The machine upside down: a chain that starts at h.
    for steps in (1, 4):
        after, _ = gibbs_chain(machine.transposed(), h, steps, seed=steps)
        found, floor = distance(np.asarray(after), law(weights))
        assert found < 4 * floor


def swapped(log_weights, groups, seed):
    few = 2 ** (NEURONS // 2)
    table = np.asarray(log_weights).reshape(len(log_weights), -1, few).transpose(0, 2, 1)
    return draw_states(table.reshape(len(log_weights), -1), groups, seed)


def independent(log_weights, groups, seed):
    states = np.asarray(binary_states(np.arange(2**NEURONS), NEURONS))
    means = np.array([law(weights) @ states for weights in log_weights])
    drawn = np.random.default_rng(seed).uniform(size=(len(groups), NEURONS))
    return drawn < means[groups]


@pytest.mark.parametrize("wrong", [swapped, independent])
def test_mutants(wrong):
    with pytest.raises(AssertionError):
        check_draws(wrong, laws())


def test_what_is_refused(enumerated):
    from keras_capsule_poe.functions import Harmonium

    with pytest.raises(ValueError, match="At most 20 binary neurons"):
        state_log_weights(Harmonium(DenseMaps(np.ones((21, 2)))))
    with pytest.raises(ValueError, match="`log_weights` must have 2"):
        draw_states(np.zeros((1, 6)), np.zeros(2, int), seed=0)
