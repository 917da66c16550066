"""Gibbs sampling of hidden neurons alone, against the law with visible neurons summed out.

Wrong versions that these tests reject: noise of the visible neurons left out, a field without
the centre, W W^T without its root taken.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe.core.mcmc import hidden_chain

NUMBER = 60_000


def one_step(model, h):
    """P(h' | h) of one step, the visible neurons summed by quadrature, in NumPy."""
    fields = model.b + (h - model.lam) @ model.w
    log_v = model.log_measure - ((model.v - fields) ** 2 + np.log(2 * np.pi)).sum(axis=1) / 2
    on = 1 / (1 + np.exp(-(model.a + (model.v - model.mu) @ model.w.T)))
    given = np.prod(np.where(model.h[:, None] == 1, on, 1 - on), axis=-1)
    return given @ np.exp(log_v)


def distance(y, model, p):
    """Total variation of draws from p, over what exact draws have on average."""
    h = np.rint(np.asarray(y) + model.lam)
    where = (h @ 2 ** np.arange(h.shape[1])[::-1]).astype(int)
    found = np.bincount(where, minlength=len(p)) / len(h)
    return np.abs(found - p).sum() / np.sqrt(2 / np.pi * p * (1 - p) / len(h)).sum()


@pytest.mark.parametrize("neurons", [2, 1])
@pytest.mark.parametrize("centred", [False, True])
def test_a_step_is_that_of_both_sides(enumerated, neurons, centred):
    """With one visible neuron W W^T has rank one."""
    model = enumerated("gaussian", neurons=neurons, hidden=3, centred=centred)
    h = model.h[5]
    y = hidden_chain(model.harmonium(), np.repeat((h - model.lam)[None], NUMBER, 0), 1, seed=0)
    p = one_step(model, h)
    np.testing.assert_allclose(p.sum(), 1, atol=1e-10)
    assert distance(y, model, p) < 4


def test_the_law_stays(enumerated):
    model = enumerated("gaussian", neurons=2, hidden=4, centred=True)
    p = np.exp(-model.hidden_free_energy() - model.log_partition())
    h = model.h[np.random.default_rng(0).choice(len(p), NUMBER, p=p)]
    for steps in (1, 4):
        y = hidden_chain(model.harmonium(), h - model.lam, steps, seed=steps)
        assert distance(y, model, p) < 4


def test_a_chain_without_noise_is_noticed(enumerated, monkeypatch):
    monkeypatch.setattr(
        keras.random, "normal", lambda shape, **_: keras.ops.zeros(shape, "float64")
    )
    model = enumerated("gaussian", neurons=2, hidden=3, scale=2.0)
    y = hidden_chain(model.harmonium(), np.repeat(model.h[5][None], NUMBER, 0), 1, seed=0)
    assert distance(y, model, one_step(model, model.h[5])) > 12


def test_other_machines_are_refused(enumerated):
    with pytest.raises(ValueError, match="Received: DenseMaps, BinaryUnits"):
        hidden_chain(enumerated("bernoulli").harmonium(), np.zeros((1, 3)), 1, seed=0)
