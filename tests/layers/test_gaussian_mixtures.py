"""Draws of mixtures as a layer, against NumPy one by one, and what they hold in memory.

Rejected: the factors of all draws gathered at once, 0.8 GB for 10,000 whole codes.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe.models.capsule_poe import layers as gaussian_mixtures
from keras_capsule_poe.models.capsule_poe.layers import GaussianMixtures

GROUPS, COMPONENTS, DIM, RANK, N = 3, 4, 5, 2, 11


def mixtures(tied=False):
    random = np.random.default_rng(0)
    weights = random.uniform(0.1, 1, size=(GROUPS, COMPONENTS))
    means = random.normal(size=(GROUPS, COMPONENTS, DIM))
    factors = random.normal(size=(GROUPS, 1 if tied else COMPONENTS, DIM, RANK))
    return tuple(a.astype("float32") for a in (weights, means, factors))


def inputs(n=N):
    random = np.random.default_rng(1)
    noise, choice = random.normal(size=(n, RANK)), random.uniform(size=n)
    return noise.astype("float32"), choice.astype("float32"), np.arange(n, dtype="int32") % GROUPS


def one_by_one(tied, noise, choice, group):
    weights, means, factors = (a.astype("float64") for a in mixtures(tied))
    for e, u, g in zip(noise, choice, group):
        share = np.cumsum(weights[g]) / weights[g].sum()
        k = min(np.searchsorted(share, u, side="right"), COMPONENTS - 1)
        yield means[g, k] + factors[g, 0 if tied else k] @ e


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("at_once", [1, 4, 1000])
def test_draws_are_those_of_numpy_however_many_at_once(monkeypatch, at_once, tied):
    monkeypatch.setattr(gaussian_mixtures, "BLOCK", at_once * DIM * RANK)
    drawn = keras.ops.convert_to_numpy(GaussianMixtures.of(*mixtures(tied))(*inputs()))
    # Sums of three numbers of size one, in float32.
    np.testing.assert_allclose(drawn, list(one_by_one(tied, *inputs())), atol=2e-6)


def test_groups_come_as_often_as_their_weights_say():
    weights = mixtures()[0].astype("float64").sum(axis=1)
    reached = np.cumsum(weights) / weights.sum()
    choice = np.linspace(0, 0.999, 400, dtype="float32")
    group = keras.ops.convert_to_numpy(GaussianMixtures.of(*mixtures()).group_of(choice))
    np.testing.assert_array_equal(group, np.searchsorted(reached, choice, side="right"))


def test_the_factors_of_all_draws_are_never_there(monkeypatch):
    gathered, some = [], GaussianMixtures._some

    def spied(self, noise, *arrays):
        gathered.append(noise.shape[0])
        return some(self, noise, *arrays)

    monkeypatch.setattr(gaussian_mixtures, "BLOCK", 7 * DIM * RANK)
    monkeypatch.setattr(GaussianMixtures, "_some", spied)
    drawn = GaussianMixtures.of(*mixtures())(*inputs(100))
    assert drawn.shape == (100, DIM)
    assert 1 < max(gathered) <= 7
