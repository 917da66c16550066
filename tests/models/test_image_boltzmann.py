"""Boltzmann machines of images, over pixels of each kind and over features."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import ConvAutoencoder, ImageBoltzmannMachine, RestrictedBoltzmannMachine
from keras_capsule_poe.core.randomness import step_seed
from keras_capsule_poe.errors import BadUse

KINDS = ("stochastic", "threshold", "unit", "features")


def built(kind):
    """A machine of four hidden neurons whose weights are not tiny, and its images."""
    side = 20 if kind == "features" else 4
    autoencoder = None
    if kind == "features":
        autoencoder = ConvAutoencoder(filters=2, seed=1)
        autoencoder.build((None, side, side, 1))
    visible = {"unit": "unit", "features": "gaussian"}.get(kind, "bernoulli")
    machine = RestrictedBoltzmannMachine(
        4, visible=visible, kernel_initializer=keras.initializers.RandomNormal(stddev=0.7, seed=2)
    )
    binarize = kind if visible == "bernoulli" else None
    model = ImageBoltzmannMachine(
        machine, (side, side, 1), binarize, autoencoder, persistent_chains=5, burn_in=6
    )
    model.build()
    images = np.random.default_rng(3).integers(256, size=(30, side, side, 1)).astype("uint8")
    machine.adapt(np.asarray(model.to_visible(images / np.float32(255))))
    model.chain_states.assign(model.visible_noise(5, 4))
    return model, images


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    return request.param, *built(request.param)


@pytest.mark.some(3)
def test_a_saved_one_is_the_same(case, tmp_path):
    _, model, images = case
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", compile=False)
    # Without its particles, or with another burn-in, it would draw others.
    np.testing.assert_array_equal(loaded.draw(7, 1)["capsules"], model.draw(7, 1)["capsules"])
    pixels = images[:3] / np.float32(255)
    for name, value in model.code(pixels).items():
        np.testing.assert_allclose(loaded.code(pixels)[name], value, rtol=1e-5, atol=1e-5)
    assert loaded.get_config()["binarize"] == model.get_config()["binarize"]


def test_pixels_become_visible_neurons(case):
    kind, model, images = case
    pixels = images[:2] / np.float32(255)
    v = np.asarray(model.to_visible(pixels))
    if kind == "features":
        expected = np.asarray(model.autoencoder.encode(pixels)).reshape(2, -1)
    else:
        expected = pixels.reshape(2, -1)
    if kind == "threshold":
        expected = images[:2].reshape(2, -1) > 127
    np.testing.assert_allclose(v, expected, atol=1e-6)


def test_gibbs_is_its_steps(case):
    _, model, images = case
    pixels = images[:4] / np.float32(255)
    x = model.to_visible(pixels)
    for step in range(3):
        x = model.chain_step(x, step_seed(9, step + 1))
    found = model.gibbs(pixels, 3, 9)["images"]
    np.testing.assert_allclose(found, model.from_visible(x), atol=1e-5)
    # Where every step drew the same numbers, or none, it would be this.
    again = model.to_visible(pixels)
    for _ in range(3):
        again = model.chain_step(again, step_seed(9, 1))
    assert np.abs(np.asarray(found) - model.from_visible(again)).max() > 1e-3
    mean = model.from_visible(model.chain_step(model.to_visible(pixels)))
    assert np.abs(np.asarray(model.gibbs(pixels, 1, 9)["images"]) - mean).max() > 1e-3
    np.testing.assert_array_equal(
        model.gibbs(pixels, 0, 9)["images"], model.from_visible(model.to_visible(pixels))
    )


@pytest.mark.some(3)
def test_densities_are_of_what_is_modelled(case):
    kind, model, images = case
    density = model.density(images, seed=5)
    values = density.log_weights(images[:8])
    v = np.asarray(model.to_visible(images[:8] / np.float32(255)))
    if kind == "stochastic":
        # Of draws, and not of the probabilities themselves.
        drawn = np.random.default_rng(5).uniform(size=v.shape) < v
        assert np.abs(values + np.asarray(model.machine.free_energy(v))).max() > 1e-2
        v = drawn.astype("float32")
    np.testing.assert_allclose(values, -np.asarray(model.machine.free_energy(v)), rtol=1e-5)
    exact, found = density.exact(), density.bracket(200, 100, seed=1)
    for side, error in ((found.forward, found.forward_error), (found.reverse, found.reverse_error)):
        assert abs(side - exact) < 5 * error + 1e-3
    with pytest.raises(BadUse, match="no `base` to name"):
        model.density(images, base="ball")


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"binarize": "both"}, "`binarize` must be"),
        ({"persistent_chains": 0}, "`persistent_chains` must be"),
        ({"burn_in": 0}, "`burn_in` must be"),
        ({"machine": 3}, "`machine` must be a RestrictedBoltzmannMachine. Received: machine=3"),
    ],
)
def test_arguments_that_cannot_be(arguments, words):
    given = {"machine": RestrictedBoltzmannMachine(3), "image_shape": (4, 4, 1), **arguments}
    with pytest.raises(ValueError, match=words):
        ImageBoltzmannMachine(**given)
    unit = RestrictedBoltzmannMachine(3, visible="unit")
    with pytest.raises(ValueError, match="must be None where neurons are 'unit'"):
        ImageBoltzmannMachine(unit, (4, 4, 1), binarize="threshold")
