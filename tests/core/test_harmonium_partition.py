"""log Z of harmoniums: enumeration against sums over states, annealing against enumeration."""

import numpy as np
import pytest
from scipy.special import logsumexp

from keras_capsule_poe.core import likelihood
from keras_capsule_poe.core.likelihood import draw_enumerated
from keras_capsule_poe.functions import (
    DenseMaps,
    Harmonium,
    annealed_partition,
    annealing_schedule,
    enumerated_log_partition,
    log_likelihood,
    reverse_annealed_partition,
)

KINDS = [(visible, centred) for visible in ("bernoulli", "gaussian", "unit") for centred in (0, 1)]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")


def machine(enumerated, kind=("bernoulli", 1), scale=1.0):
    visible, centred = kind
    neurons = 5 if visible == "bernoulli" else 2
    return enumerated(visible, neurons, hidden=3, centred=bool(centred), scale=scale)


@every_kind
def test_enumeration_is_the_sum_over_all_states(enumerated, kind, monkeypatch):
    truth = machine(enumerated, kind)
    # Sums of positive terms, and quadrature of smooth functions.
    expected = pytest.approx(truth.log_partition(), abs=1e-9)
    assert enumerated_log_partition(truth.harmonium()) == expected
    monkeypatch.setattr(likelihood, "_BLOCK", 3)
    assert enumerated_log_partition(truth.harmonium()) == expected


def test_either_side_is_enumerated(enumerated):
    truth = enumerated(neurons=3, hidden=6, centred=True)
    assert enumerated_log_partition(truth.harmonium()) == pytest.approx(
        truth.log_partition(), abs=1e-10
    )


@pytest.mark.parametrize("neurons, hidden", [(3, 5), (5, 3)])
def test_draws_of_the_smaller_side_are_of_the_law(enumerated, neurons, hidden):
    # Either side is the smaller once; draws of p(h) that forget a bias, or the centre, fail.
    truth = enumerated(neurons=neurons, hidden=hidden, centred=True, scale=1.5)
    n = 20_000
    drawn = np.asarray(draw_enumerated(truth.harmonium(), n, seed=1)) + truth.mu
    number = drawn.round().astype(int) @ (1 << np.arange(neurons))
    expected = np.zeros(2**neurons)
    expected[truth.v.astype(int) @ (1 << np.arange(neurons))] = truth.law()
    found = np.bincount(number, minlength=2**neurons) / n
    # Once in ten thousand would one of 32 states be five deviations off.
    assert np.all(np.abs(found - expected) < 5 * np.sqrt(expected * (1 - expected) / n) + 1e-9)
    np.testing.assert_array_equal(draw_enumerated(truth.harmonium(), 9, 1) + truth.mu, drawn[:9])


def test_what_cannot_be_computed_is_refused(enumerated):
    with pytest.raises(ValueError, match=r"At most 20 binary.*Received: hidden units \(21,\)"):
        enumerated_log_partition(Harmonium(DenseMaps(np.zeros((21, 22)))))
    ours = machine(enumerated).harmonium()
    for betas in ([0.0, 0.5], [0.1, 1.0], [0.0, 0.6, 0.5, 1.0], [1.0], [[0.0, 1.0]]):
        with pytest.raises(ValueError, match="`betas` must rise from zero to one. Received"):
            annealed_partition(ours, betas)
    with pytest.raises(ValueError, match="`chains` must be.*Received: chains=1"):
        annealed_partition(ours, [0.0, 1.0], chains=1)


@every_kind
def test_the_likelihood_is_the_mean_over_images(enumerated, kind):
    truth = machine(enumerated, kind)
    data = truth.draws(50)
    mean, error = log_likelihood(truth.harmonium(), data - truth.mu, truth.log_partition())
    logs = -truth.free_energy(data) - truth.log_partition()
    assert mean == pytest.approx(logs.mean(), abs=1e-10)
    assert error == pytest.approx(logs.std(ddof=1) / np.sqrt(50), abs=1e-10)


def test_the_schedule_of_salakhutdinov_and_murray():
    betas = annealing_schedule()
    assert len(betas) == 14_501 and betas[0] == 0 and betas[-1] == 1
    steps = np.diff(betas)
    for part, step in ((steps[:500], 1e-3), (steps[500:4500], 1e-4), (steps[4500:], 1e-5)):
        np.testing.assert_allclose(part, step, rtol=1e-8)


@pytest.mark.some(5)
@every_kind
def test_annealing_finds_log_z(enumerated, kind):
    truth = machine(enumerated, kind, scale=1.5)
    betas, base = annealing_schedule((1.0, 100)), 0.5 * truth.b
    exact = truth.log_partition()
    for found in (
        annealed_partition(truth.harmonium(), betas, 400, base),
        reverse_annealed_partition(truth.harmonium(), truth.draws(400) - truth.mu, betas, base),
    ):
        # Where a Gaussian starts on nodes 0.3 apart, its weights are still right on average.
        assert abs(found.log_z - exact) < min(4 * found.error + 1e-9, 0.1)
        assert 0 < found.error < 0.03


@pytest.mark.some(2)
@pytest.mark.parametrize("shape", [(12, 15), (16, 784)])
def test_annealing_larger_machines(shape):
    random = np.random.default_rng(0)
    w = random.normal(size=shape) * (1.0 if shape[0] == 12 else 0.3)
    b, a = random.normal(size=shape[1]) - 2, random.normal(size=shape[0])
    ours = Harmonium(DenseMaps(w.astype("float32")), None, None, a, b)
    exact = enumerated_log_partition(ours)
    found = annealed_partition(ours, annealing_schedule((1.0, 1000)), chains=200)
    assert abs(found.log_z - exact) < min(0.1, 0.005 * abs(exact))


def test_one_step_is_importance_sampling(enumerated, monkeypatch):
    truth = machine(enumerated)
    ours, base = truth.harmonium(), 0.3 * truth.b
    drawn = []
    sample = type(ours.visible).sample

    def kept(self, z, seed):
        drawn.append(np.asarray(sample(self, z, seed)))
        return drawn[-1]

    monkeypatch.setattr(type(ours.visible), "sample", kept)
    monkeypatch.setattr(likelihood, "compiled", lambda function: function)
    found = annealed_partition(ours, [0.0, 1.0], 50, base)
    v = drawn[0] + truth.mu
    # log Z_0 - F(v) + F_0(v), where F_0 has neither maps nor hidden biases.
    free = -np.log(1 + np.exp(base)).sum() + truth.mu @ base  # centred: less mu
    log_z0 = -free + np.log(np.sum(np.exp(-truth.h @ np.zeros(3))))
    expected = log_z0 - truth.free_energy(v) - ((v - truth.mu) @ base + 3 * np.log(2))
    np.testing.assert_allclose(found.log_weights, expected, atol=1e-12)
    assert found.log_z == pytest.approx(logsumexp(expected) - np.log(50), abs=1e-12)


def weights(enumerated, steps, scale=3.0, runs=400):
    """Forward and reverse log weights of short runs, less the exact log Z."""
    truth = machine(enumerated, scale=scale)
    betas, exact = annealing_schedule((1.0, steps)), truth.log_partition()
    forward = annealed_partition(truth.harmonium(), betas, runs, 0 * truth.b)
    samples = truth.draws(runs, seed=1) - truth.mu
    back = reverse_annealed_partition(truth.harmonium(), samples, betas, 0 * truth.b)
    return forward.log_weights - exact, back.log_weights - exact


def mean_and_error(values):
    return values.mean(), values.std(ddof=1) / np.sqrt(len(values))


def unbiased(enumerated):
    """Whether Z and 1/Z are unbiased, in standard errors, at ten temperatures."""
    forward, back = weights(enumerated, 10)
    ratios = []
    for mean, error in (mean_and_error(np.exp(forward)), mean_and_error(np.exp(-back))):
        ratios.append(abs(mean - 1) / error)
    return max(ratios)


def test_weights_are_unbiased(enumerated):
    assert unbiased(enumerated) < 4


def test_forward_and_reverse_bracket_log_z(enumerated):
    widths = []
    for steps in (3, 30, 300):
        forward, back = weights(enumerated, steps)
        (low, low_error), (high, high_error) = mean_and_error(forward), mean_and_error(back)
        assert low < 4 * low_error and high > -4 * high_error
        widths.append(high - low)
        if steps == 3:  # on either side for certain
            assert low < -4 * low_error and high > 4 * high_error
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_estimates_follow_the_seed(enumerated):
    ours, betas = machine(enumerated).harmonium(), [0.0, 0.5, 1.0]
    one, same, other = (annealed_partition(ours, betas, 20, seed=s).log_z for s in (0, 0, 1))
    assert one == same != other


def _stay(patch):
    """Wrong: chains that a step moves to where their law is not kept."""
    patch.setattr(
        likelihood,
        "gibbs_step",
        lambda machine, x, seed, fields: (-x, None),
    )


def _no_hidden(patch):
    """Wrong: a base without its hidden neurons."""
    right = likelihood._base_log_partition
    patch.setattr(likelihood, "_base_log_partition", lambda m, b: right(m, b) - 3 * np.log(2))


@pytest.mark.parametrize("mutant", [_stay, _no_hidden], ids=lambda mutant: mutant.__name__)
def test_mutants(enumerated, monkeypatch, mutant):
    mutant(monkeypatch)
    assert unbiased(enumerated) > 6
