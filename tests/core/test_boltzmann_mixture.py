"""The mixture of Boltzmann machines, against Gaussians at the corners of its cubes, in NumPy.

Given a capsule and a state of its neurons, v is N(b + W^T h, 1); so P(v) is a sum over all states
of all capsules, written out here. Wrong versions that these tests reject, and `test_mutants`
runs: capsules without their normalisers, neurons taken for independent, shares forgotten, and a
visible bias that the states forget.
"""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from keras_capsule_poe.core import enumeration
from keras_capsule_poe.core.enumeration import BoltzmannMixture, fit_shares

J, E, N = 3, 3, 4
H = np.array(list(itertools.product((0.0, 1.0), repeat=E)))


def parameters(seed=0):
    random = np.random.default_rng(seed)
    shapes = (J, E, N), (J, E), (N,), (J,)
    return [random.normal(size=shape) for shape in shapes]


def corners(parameters):
    """log P(k, h), (J, 2^E), and the mean of v at each, (J, 2^E, N)."""
    w, a, b, shares = parameters
    means = b + np.einsum("se,jen->jsn", H, w)
    energy = np.einsum("se,je->js", H, a) + np.square(means).sum(axis=-1) / 2
    log_p = energy - logsumexp(energy, axis=1, keepdims=True)
    return log_p + np.log(softmax(shares))[:, None], means


def log_joint(parameters, v):
    """log P(k, h, v), (B, J, 2^E)."""
    log_p, means = corners(parameters)
    distance = np.square(v[:, None, None] - means).sum(axis=-1)
    return log_p - distance / 2 - N / 2 * np.log(2 * np.pi)


def mean_log_density(parameters, v):
    return logsumexp(log_joint(parameters, v), axis=(1, 2)).mean()


def images(n=7, seed=1):
    return 1.5 * np.random.default_rng(seed).normal(size=(n, N))


def test_densities_and_parents():
    v = images()
    mixture, joint = BoltzmannMixture(*parameters()), log_joint(parameters(), v)
    # Sums of 64-bit numbers of order ten.
    np.testing.assert_allclose(mixture.log_joint(v), logsumexp(joint, axis=2), atol=1e-12)
    np.testing.assert_allclose(mixture.log_density(v), logsumexp(joint, axis=(1, 2)), atol=1e-12)
    log_density, parent, neurons = mixture.infer(v)
    np.testing.assert_allclose(log_density, mixture.log_density(v), atol=1e-12)
    p = np.exp(joint - logsumexp(joint, axis=(1, 2), keepdims=True))
    np.testing.assert_allclose(parent, p.sum(axis=2), atol=1e-12)
    np.testing.assert_allclose(neurons, np.einsum("bjs,se->bje", p, H), atol=1e-12)
    w, _, b, _ = parameters()
    mean = b + np.einsum("bjs,se,jen->bn", p, H, w)
    np.testing.assert_allclose(mixture.decode(neurons), mean, atol=1e-12)


def finite_differences(v, step=1e-5):
    found = []
    for index, values in enumerate(parameters()):
        slope = np.zeros(values.size)
        for entry in range(values.size):
            ends = []
            for sign in (1, -1):
                moved = parameters()
                moved[index].flat[entry] += sign * step
                ends.append(mean_log_density(moved, v))
            slope[entry] = (ends[0] - ends[1]) / (2 * step)
        found.append(slope.reshape(values.shape))
    return found


def check_gradient(mixture):
    v = images()
    gradient, posterior = mixture.gradient(v)
    np.testing.assert_allclose(posterior.neurons, mixture.infer(v).neurons, atol=1e-12)
    for found, expected in zip(gradient, finite_differences(v), strict=True):
        # Central differences: the step squared, and rounding of 1e-15 over the step.
        np.testing.assert_allclose(found, expected, atol=3e-9)


def test_the_gradient_is_that_of_the_density():
    check_gradient(BoltzmannMixture(*parameters()))


def test_ascent_climbs():
    v, values = images(), parameters()
    before = mean_log_density(values, v)
    for _ in range(50):
        gradient, _ = BoltzmannMixture(*values).gradient(v)
        moved = [value + 0.02 * np.asarray(g) for value, g in zip(values, gradient)]
        after = mean_log_density(moved, v)
        assert after > before
        values, before = moved, after


def total_variation(h, parent):
    """Of draws of (k, h) from their law, and what it would be for exact ones on average."""
    own = np.take_along_axis(h, parent[:, None, None], axis=1)[:, 0]
    assert np.all(h.sum(axis=(1, 2)) == own.sum(axis=1)), "neurons of another capsule are on"
    state = own.astype(int) @ 2 ** np.arange(E)[::-1]
    p = np.exp(corners(parameters())[0]).ravel()
    counts = np.bincount(parent * 2**E + state, minlength=p.size) / len(parent)
    return np.abs(counts - p).sum() / 2, np.sqrt(p * (1 - p) / len(parent)).sum() / 2


def test_draws_are_exact_and_gibbs_steps_leave_them():
    mixture, n = BoltzmannMixture(*parameters()), 20_000
    v, h, parent = mixture.draw(n, seed=0)
    for seed in range(5):
        distance, floor = total_variation(np.asarray(h), np.asarray(parent))
        assert distance < 4 * floor
        # v given both is normal about its corner: five standard errors.
        means = np.einsum("bje,jen->bn", h, parameters()[0]) + parameters()[2]
        noise = np.asarray(v) - means
        np.testing.assert_allclose(noise.mean(axis=0), 0, atol=5 / np.sqrt(n))
        np.testing.assert_allclose(noise.var(axis=0), 1, atol=5 * np.sqrt(2 / n))
        v, h, parent = mixture.gibbs_step(v, seed)


def test_shares_are_most_probable():
    """No share can move a little without lowering the likelihood: its gradient is a constant."""
    random = np.random.default_rng(2)
    logs = 2 * random.normal(size=(500, J))
    found = fit_shares(logs, np.zeros(J), steps=500)
    joint = logs + found
    share = softmax(joint, axis=1).mean(axis=0)
    np.testing.assert_allclose(share, np.exp(found), atol=1e-6)
    before = -np.inf
    for steps in range(5):
        shares = fit_shares(logs, np.log([0.1, 0.1, 0.8]), steps=steps)
        now = logsumexp(logs + shares, axis=1).mean()
        assert now > before
        before = now


def test_without_biases():
    mixture = BoltzmannMixture(np.zeros((2, 3, N)))
    expected = -np.square(images()).sum(axis=1) / 2 - N / 2 * np.log(2 * np.pi)
    np.testing.assert_allclose(mixture.log_density(images()), expected, atol=1e-12)


def mutant_moments(kind):
    def moments(table):
        found = state_moments(table)
        if kind == "independent":
            mean = np.asarray(found.mean)
            second = mean[:, :, None] * mean[:, None] * (1 - np.eye(E)) + np.eye(E) * mean[:, None]
            return found._replace(second=second)
        return found._replace(log_z=np.zeros(J))

    state_moments = enumeration.state_moments
    return moments


@pytest.mark.parametrize("mutant", ["unnormalised", "independent", "shareless", "unbiased"])
def test_mutants(mutant, monkeypatch):
    mixture = BoltzmannMixture(*parameters())
    if mutant in ("unnormalised", "independent"):
        monkeypatch.setattr(enumeration, "state_moments", mutant_moments(mutant))
    elif mutant == "unbiased":
        mixture.table = BoltzmannMixture(*parameters()[:2]).table
    else:
        mixture = BoltzmannMixture(*parameters()[:3])
    with pytest.raises(AssertionError):
        check_gradient(mixture)
