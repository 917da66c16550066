"""The restricted Boltzmann machine as a layer: its energy, its centre, its file."""

import itertools

import keras
import numpy as np
import pytest

from keras_capsule_poe import RestrictedBoltzmannMachine
from keras_capsule_poe.functions import enumerated_log_partition
from keras_capsule_poe.models.boltzmann.layers import VISIBLE

KINDS = list(itertools.product(VISIBLE, (False, True)))
every_kind = pytest.mark.parametrize(
    "visible, centering", KINDS, ids=[f"{v}{'-centred' * c}" for v, c in KINDS]
)
H = np.array(list(itertools.product((0.0, 1.0), repeat=3)))


def machine(visible="bernoulli", centering=True, neurons=2, seed=0, **kwargs):
    """A machine of three hidden neurons, float64, all of whose weights are random."""
    layer = RestrictedBoltzmannMachine(
        3, visible=visible, centering=centering, dtype="float64", **kwargs
    )
    layer.build((None, neurons))
    random = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(random.uniform(-1, 1, size=weight.shape))
    return layer


def images(visible="bernoulli", n=6, neurons=2):
    random = np.random.default_rng(1)
    v = random.uniform(size=(n, neurons))
    return {"bernoulli": v > 0.5, "unit": v, "gaussian": 3 * v - 1}[visible].astype("float64")


def energy(layer, v, h):
    """E(v, h) of one v and one h as the docstring has it, and log s of Gaussian neurons."""
    w, a, b = (np.asarray(x) for x in (layer.kernel, layer.hidden_bias, layer.visible_bias))
    mu, lam = (
        0 if offset is None else np.asarray(offset)
        for offset in (layer.visible_offset, layer.hidden_offset)
    )
    base = 0.0
    if layer.visible == "gaussian":
        log_s = np.asarray(layer.log_variance) / 2
        v = v / np.exp(log_s)
        base = np.sum(v**2 + np.log(2 * np.pi)) / 2 + log_s.sum()
    return base - (v - mu) @ b - (h - lam) @ (a + w @ (v - mu))


@every_kind
def test_free_energy_and_hidden_probabilities(visible, centering):
    layer, v = machine(visible, centering), images(visible)
    weights = np.exp([[-energy(layer, x, h) for h in H] for x in v])
    # Eight positive terms in float64.
    np.testing.assert_allclose(layer.free_energy(v), -np.log(weights.sum(axis=1)), rtol=1e-12)
    p = weights @ H / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(layer(v), p, rtol=1e-12)


@every_kind
def test_densities_integrate_to_one(visible, centering):
    layer = machine(visible, centering)
    line, weights = np.array([0.0, 1.0]), np.ones(2)
    if visible == "unit":
        line, weights = np.polynomial.legendre.leggauss(30)
        line, weights = (line + 1) / 2, weights / 2
    elif visible == "gaussian":
        line = np.arange(-25, 25, 0.3)
        weights = np.full(len(line), 0.3)
    v = np.array(list(itertools.product(line, line)))
    log_z = enumerated_log_partition(layer.harmonium())
    p = np.exp(-np.asarray(layer.free_energy(v)) - log_z)
    mean, _ = layer.log_likelihood(images(visible), log_z)
    logs = -np.asarray(layer.free_energy(images(visible))) - log_z
    assert mean == pytest.approx(logs.mean(), rel=1e-10)
    # The trapezoidal rule for Gaussians of deviation 0.6 and more errs by exp(-2 pi^2 0.36/0.09).
    assert p @ np.prod(list(itertools.product(weights, weights)), axis=1) == pytest.approx(
        1, abs=1e-9
    )


@pytest.mark.parametrize("visible", VISIBLE)
def test_moving_the_centre_leaves_the_law_alone(visible):
    layer, v = machine(visible), images(visible)
    before, p = np.asarray(layer.free_energy(v)), np.asarray(layer(v))
    layer.move_offsets(np.array([0.1, -0.2]), np.array([0.3, 0.05, -0.1]))
    after = np.asarray(layer.free_energy(v))
    # F moves by a constant, as log Z does.
    np.testing.assert_allclose(after - before, (after - before)[0], atol=1e-12)
    np.testing.assert_allclose(layer(v), p, rtol=1e-12)
    layer.visible_offset.assign_add([0.1, 0.1])  # wrong: the biases do not follow
    assert np.abs(np.asarray(layer(v)) - p).max() > 1e-3


@every_kind
def test_gibbs_draws_are_of_the_visible_kind(visible, centering):
    layer, v = machine(visible, centering), images(visible, n=50)
    drawn, h = (np.asarray(side) for side in layer.gibbs(v, steps=3, seed=1))
    assert drawn.shape == v.shape and h.shape == (50, 3)
    np.testing.assert_allclose(h, np.rint(h), atol=1e-12)
    if visible == "bernoulli":
        np.testing.assert_allclose(drawn, np.rint(drawn), atol=1e-12)
    if visible == "unit":
        assert drawn.min() >= -1e-12 and drawn.max() <= 1 + 1e-12
    same, other = (np.asarray(layer.gibbs(v, 3, seed=s)[0]) for s in (1, 2))
    assert np.array_equal(drawn, same) and not np.array_equal(drawn, other)


@every_kind
def test_the_mean_of_reconstructions(visible, centering):
    layer, v = machine(visible, centering), images(visible)
    mean = np.asarray(layer.reconstruct(v))
    assert mean.shape == v.shape
    p = np.asarray(layer(v))
    lam = 0 if layer.hidden_offset is None else np.asarray(layer.hidden_offset)
    field = np.asarray(layer.visible_bias) + (p - lam) @ np.asarray(layer.kernel)
    if visible == "gaussian":
        expected = field * np.exp(np.asarray(layer.log_variance) / 2)
    else:
        expected = np.asarray(VISIBLE[visible]().mean(field))
    np.testing.assert_allclose(mean, expected, atol=1e-12)


@every_kind
def test_adapt_models_the_means_of_the_data(visible, centering):
    layer = RestrictedBoltzmannMachine(3, visible, centering, kernel_initializer="zeros")
    data = images(visible, n=500, neurons=4)
    layer.adapt(data)
    # As if each state had been seen once more; float32.
    tolerance = 1e-5 if visible == "gaussian" else 2 / 500
    np.testing.assert_allclose(
        np.asarray(layer.reconstruct(data))[0], data.mean(axis=0), atol=tolerance
    )
    if visible == "gaussian":
        np.testing.assert_allclose(np.exp(layer.log_variance), data.var(axis=0), rtol=1e-4)
    if centering:
        mean = np.asarray(layer.standardised(data)).mean(axis=0)
        np.testing.assert_allclose(layer.visible_offset, mean, atol=tolerance)


@every_kind
def test_it_is_saved_and_loaded(visible, centering, tmp_path):
    inputs = keras.Input((2,))
    layer = RestrictedBoltzmannMachine(3, visible, centering, learn_variance=False)
    model = keras.Model(inputs, layer(inputs))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    v = images(visible)
    np.testing.assert_array_equal(model(v), again(v))
    assert again.layers[-1].get_config() == layer.get_config()


def test_half_precision_is_only_of_the_outputs():
    layer = RestrictedBoltzmannMachine(3, dtype="mixed_bfloat16")
    v = images()
    assert keras.backend.standardize_dtype(layer(v).dtype) == "bfloat16"
    assert keras.backend.standardize_dtype(layer.free_energy(v).dtype) == "float32"


def test_what_is_refused():
    with pytest.raises(ValueError, match="`units` must be a positive integer. Received: units=0"):
        RestrictedBoltzmannMachine(0)
    with pytest.raises(ValueError, match="`visible` must be.*Received: visible='real'"):
        RestrictedBoltzmannMachine(3, visible="real")
    with pytest.raises(ValueError, match="must be flat.*Received: input_shape"):
        RestrictedBoltzmannMachine(3).build((None, 28, 28))
