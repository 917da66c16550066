"""The chain of a harmonium: its law, and what contrastive divergence is on average.

Machines of 16 visible and 8 hidden states, whose transitions are made of the library's own
conditionals, and chains that are drawn.
"""

import numpy as np
import pytest

from keras_capsule_poe.functions import (
    DenseMaps,
    Harmonium,
    contrastive_divergence,
    gibbs_chain,
    gibbs_step,
)


def machine(enumerated, kind=("bernoulli", 1), **kwargs):
    visible, centred = kind
    neurons = 4 if visible == "bernoulli" else 2
    return enumerated(visible, neurons, centred=bool(centred), **kwargs)


# 5, 6: what contrastive divergence is on average


def starts(truth, data):
    return np.bincount((data @ 2 ** np.arange(4)[::-1]).astype(int), minlength=16) / len(data)


def mean_and_error(ours, truth, law, number):
    """Means of the statistics under a law of v, and the standard errors of so many draws."""
    x = truth.sent()
    score = np.asarray(ours.hidden.score(ours.fields(x)))
    rows = np.concatenate([np.einsum("ve,vd->ved", score, x).reshape(len(x), -1), score, x], axis=1)
    mean = law @ rows
    return mean, np.sqrt((law @ rows**2 - mean**2) / number)


def cd_errors(enumerated, k, number=40_000):
    """The drawn CD-k gradient less the exact means of CD-k and CD-(k+2), in standard errors."""
    truth = machine(enumerated, scale=3.0)
    ours, data = truth.harmonium(), truth.v[[1, 2, 7, 12]]
    chains = np.repeat(data, number // 4, axis=0)
    step = contrastive_divergence(
        ours.maps,
        truth.sent(chains),
        hidden=ours.hidden,
        visible=ours.visible,
        hidden_bias=ours.hidden_bias,
        visible_bias=ours.visible_bias,
        cd_steps=k,
        seed=k,
    )
    found = [np.ravel(part) for part in (step.gradient, step.hidden_bias, step.visible_bias)]
    start, t = starts(truth, data), truth.transition(truth.harmonium())
    first, _ = mean_and_error(ours, truth, start, number)
    results = []
    for steps in (k, k + 2):
        law = start @ np.linalg.matrix_power(t, steps)
        mean, error = mean_and_error(ours, truth, law, number)
        results.append(np.abs(np.concatenate(found) - (first - mean)) / error)
    return results


@pytest.mark.parametrize("k", [1, 3, 10])
def test_contrastive_divergence_has_the_mean_of_k_steps(enumerated, k):
    right, later = cd_errors(enumerated, k)
    assert right.max() < 5
    if k == 1:
        assert later.max() > 20


def test_more_steps_tend_to_the_likelihood_gradient(enumerated):
    truth = machine(enumerated, scale=2.0)
    ours, data = truth.harmonium(), truth.v[[1, 2, 7, 12]]
    t = truth.transition(ours)
    first, _ = mean_and_error(ours, truth, starts(truth, data), 1)
    exact = first - mean_and_error(ours, truth, truth.law(), 1)[0]
    assert np.abs(exact - np.concatenate([np.ravel(s) for s in truth.slopes(data)])).max() < 1e-8
    second = np.sort(np.abs(np.linalg.eigvals(t)))[-2]
    steps, distances = np.arange(8, 20), []
    for k in steps:
        law = starts(truth, data) @ np.linalg.matrix_power(t, k)
        model, _ = mean_and_error(ours, truth, law, 1)
        distances.append(np.abs(first - model - exact).max())
    assert distances[-1] > 1e-12  # above rounding
    slope = np.polyfit(steps, np.log(distances), 1)[0]
    assert slope == pytest.approx(np.log(second), rel=0.05)


# 7, 8, 9: the law of the chain


def law_is_kept(truth):
    t, p = truth.transition(truth.harmonium()), truth.law()
    np.testing.assert_allclose(p @ t, p, atol=1e-12)


def balance_is_detailed(truth):
    flow = truth.law()[:, None] * truth.transition(truth.harmonium())
    np.testing.assert_allclose(flow, flow.T, atol=1e-13)


@pytest.mark.parametrize("centred", [0, 1])
def test_a_gibbs_step_keeps_the_law_in_detailed_balance(enumerated, centred):
    truth = machine(enumerated, ("bernoulli", centred))
    law_is_kept(truth)
    balance_is_detailed(truth)


def variations(truth, steps, seed, number=20_000):
    """Total variation of chains from p(v) and p(v, h), over what as many exact draws have."""
    x, y = gibbs_chain(truth.harmonium(), truth.sent(truth.draws(number, seed)), steps, seed)
    v, h = np.asarray(x) + truth.mu, np.asarray(y) + truth.lam
    joint = np.exp(-truth.energies())
    joint /= joint.sum()
    index = np.rint(v @ 2 ** np.arange(v.shape[1])[::-1]).astype(int)
    pair = index * len(truth.h) + np.rint(h @ 2 ** np.arange(h.shape[1])[::-1]).astype(int)
    found = []
    for where, p in ((index, joint.sum(axis=1)), (pair, joint.ravel())):
        distance = np.abs(np.bincount(where, minlength=len(p)) / number - p).sum() / 2
        found.append(distance / (np.sqrt(2 / np.pi * p * (1 - p) / number).sum() / 2))
    return max(found)


@pytest.mark.parametrize("centred", [0, 1])
def test_chains_that_start_at_the_law_stay_there(enumerated, centred):
    truth = machine(enumerated, ("bernoulli", centred))
    for seed, steps in enumerate((1, 4, 16)):
        # Three times in four hundred thousand by chance, were it Gaussian.
        assert variations(truth, steps, seed) < 4


@pytest.mark.parametrize("visible", ["gaussian", "unit"])
def test_chains_of_real_neurons_keep_their_moments(enumerated, visible):
    truth = machine(enumerated, (visible, 1))
    chains = truth.draws(20_000)
    p, v = truth.law(), truth.v
    if visible == "gaussian":  # the nodes are 0.3 apart
        chains = chains + np.random.default_rng(1).uniform(-0.15, 0.15, size=chains.shape)
    x, _ = gibbs_chain(truth.harmonium(), truth.sent(chains), 3, seed=0)
    drawn = np.asarray(x) + truth.mu
    for power in (1, 2):
        mean = p @ v**power
        error = np.sqrt((p @ v ** (2 * power) - mean**2) / 20_000)
        assert (np.abs((drawn**power).mean(axis=0) - mean) / error).max() < 5


def test_transitions_of_wrong_versions_leave_the_law(enumerated, monkeypatch):
    truth = enumerated("bernoulli", 4, hidden=4, centred=True)
    right = Harmonium.transposed
    for name, change in (("hidden_bias", -1), ("maps", 2)):

        def wrong(self, name=name, change=change):
            found = right(self)
            value = getattr(found, name)
            value = DenseMaps(change * value.kernel) if name == "maps" else change * value
            setattr(found, name, value)
            return found

        monkeypatch.setattr(Harmonium, "transposed", wrong)
        with pytest.raises(AssertionError):
            law_is_kept(truth)
        monkeypatch.undo()
    law_is_kept(truth)


def test_chains_of_wrong_versions_leave_the_law(enumerated, monkeypatch):
    truth = enumerated("bernoulli", 4, hidden=4, centred=True)
    assert variations(truth, 4, seed=0) < 4
    monkeypatch.setattr(DenseMaps, "up", lambda self, c, x: x @ self.kernel)
    assert variations(truth, 4, seed=0) > 8
    monkeypatch.undo()
    # A stale h: not the one that v was drawn from but its successor, as independent of v' as v is.
    states = gibbs_step(truth.harmonium(), truth.sent(truth.draws(20_000)), seed=1)
    shuffled = np.roll(np.asarray(states[1]), 1, axis=0)
    joint = np.asarray(states[0]).T @ np.asarray(states[1]) / 20_000
    stale = np.asarray(states[0]).T @ shuffled / 20_000
    p = np.exp(-truth.energies())
    pairs = truth.sent().T @ (p / p.sum()) @ (truth.h - truth.lam)
    assert np.abs(joint - pairs).max() < 0.02 < 0.05 < np.abs(stale - pairs).max()
