"""Replica exchange on machines small enough to enumerate all replicas together."""

import itertools

import numpy as np
import pytest

from keras_capsule_poe.core.mcmc import exchange_log_odds, replica_exchange

BETAS = np.array([1.0, 0.6, 0.1])


def energies(enumerated, scale=2.0):
    """F_b(v) of each inverse temperature and state, and the function that replicas ask."""
    truth = enumerated(neurons=2, hidden=2, centred=True, scale=scale)
    ours, base = truth.harmonium(), np.array([0.5, -1.0])
    x = truth.v - truth.mu

    def free_energy(x, betas):
        return ours.tempered(np.asarray(betas)[..., None], base).free_energy(x)

    table = [np.asarray(ours.tempered(beta, base).free_energy(x)) for beta in BETAS]
    return x, np.array(table), free_energy


def replicas(x):
    """All states of three replicas: their indices (3, N) and what they send (3, N, D)."""
    index = np.array(list(itertools.product(range(len(x)), repeat=3))).T
    return index, x[index]


def exchange_matrix(x, free_energy, odd, beta_of=BETAS):
    """Transition matrix of one exchange, over the states of all three replicas."""
    index, sent = replicas(x)
    partner, odds = exchange_log_odds(free_energy, sent, beta_of, odd)
    partner, probability = np.asarray(partner), np.exp(np.minimum(np.asarray(odds), 0))
    pair = (1, 2) if odd else (0, 1)
    assert partner[list(pair)].tolist() == list(pair[::-1])
    assert partner[2 - 2 * odd] == 2 - 2 * odd
    np.testing.assert_allclose(probability[pair[0]], probability[pair[1]], rtol=1e-14)
    number = index.shape[1]
    matrix = np.zeros((number, number))
    swapped = index.copy()
    swapped[list(pair)] = index[list(pair[::-1])]
    target = np.ravel_multi_index(swapped, (len(x),) * 3)
    matrix[np.arange(number), target] += probability[pair[0]]
    matrix[np.arange(number), np.arange(number)] += 1 - probability[pair[0]]
    return matrix


def law(table, index):
    p = np.exp(-table)
    p /= p.sum(axis=1, keepdims=True)
    return np.prod([p[t][index[t]] for t in range(3)], axis=0)


@pytest.mark.parametrize("odd", [False, True])
def test_exchanges_keep_the_law_in_detailed_balance(enumerated, odd):
    x, table, free_energy = energies(enumerated)
    p = law(table, replicas(x)[0])
    matrix = exchange_matrix(x, free_energy, odd)
    np.testing.assert_allclose(p @ matrix, p, atol=1e-12)
    flow = p[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-13)
    assert np.abs(matrix - np.eye(len(matrix))).max() > 0.1
    # Wrong: the odds upside down, and temperatures that are not the chains'.
    for wrong in (
        exchange_matrix(x, lambda x, b: -free_energy(x, b), odd),
        exchange_matrix(x, free_energy, odd, beta_of=BETAS**2),
    ):
        assert np.abs(p @ wrong - p).max() > 1e-3


@pytest.mark.parametrize("odd", [False, True])
def test_draws_follow_the_odds_and_lose_no_chain(enumerated, odd):
    x, _, free_energy = energies(enumerated)
    chosen = np.random.default_rng(0).integers(len(x), size=(3, 50))
    chosen = np.repeat(chosen, 400, axis=1)
    sent = x[chosen]
    moved, accepted = (np.asarray(r) for r in replica_exchange(free_energy, sent, BETAS, 3, odd))
    np.testing.assert_allclose(np.sort(moved, axis=0), np.sort(sent, axis=0))
    partner, odds = (np.asarray(r) for r in exchange_log_odds(free_energy, sent, BETAS, odd))
    alone = 0 if odd else 2
    assert not accepted[alone].any() and np.array_equal(moved[alone], sent[alone])
    expected = np.exp(np.minimum(odds[1], 0))
    rates = accepted[1].reshape(50, 400).mean(axis=1)
    p = expected.reshape(50, 400)[:, 0]
    # Binomial deviations of 400 draws, at most 0.025; five of these.
    assert np.abs(rates - p).max() < 0.125
    assert np.array_equal(accepted[1], accepted[partner[1]])
    where = accepted[1]
    assert np.array_equal(moved[1][where], sent[partner[1]][where])


def test_replicas_at_one_temperature_always_exchange(enumerated):
    x, _, free_energy = energies(enumerated)
    sent = x[np.random.default_rng(0).integers(len(x), size=(2, 100))]
    moved, accepted = replica_exchange(free_energy, sent, np.array([0.5, 0.5]), seed=0)
    assert np.asarray(accepted).all()
    np.testing.assert_array_equal(moved, sent[::-1])
