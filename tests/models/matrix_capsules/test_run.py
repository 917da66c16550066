"""Networks of matrix capsules: presets and their sizes, trained by commands, judged, served.

Rejected: biases that the published networks do not have; a margin that begins anew in a run that
goes on; settings that mean nothing and are taken all the same.
"""

import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import MatrixCapsNet, registry
from keras_capsule_poe.data import load_images
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.models.base.networks import optimizer

# Two iterations have the smaller graph, and graphs are what takes time here.
TINY = {
    "filters": 6,
    "primary_types": 2,
    "types": 3,
    "last_types": 3,
    "size": 2,
    "routing_iterations": 2,
}
TINY |= {"augmentation": "none", "decoder": "dense"}
# Compiling takes longer than all else here; the tests of fused EM routing have the compiled form.
COMPUTE = {"precision": "float32", "implementation": "reference"}


def settings_of(preset="small", **settings):
    settings = {"dataset": "digits", "compute": COMPUTE, **settings}
    return registry.settings("matrix-capsules", preset, **settings)


def network(preset="small", shape=(16, 16, 1), **settings):
    return MatrixCapsNet.of_shape(settings_of(preset, **settings), shape)


@pytest.mark.parametrize(
    "preset, number", [("small", 68_618), ("paper", 316_650), ("official", 316_650)]
)
def test_presets_have_the_published_numbers_of_parameters(preset, number):
    model = network(preset, (48, 48, 2), classes=5, augmentation="norb")
    assert model.count_params() == number
    first, last = model.capsule_layers[1], model.capsule_layers[-1]
    assert model.spread.scaling == ("official" if preset == "official" else "sum")
    if preset == "official":
        assert (first.options.compete, first.options.damping) == ("places", 0.1)
        assert (first.options.routing_iterations, first.options.variance_floor) == (3, 5e-4)
        assert settings_of(preset).net.first_rate == 0.003
        (margin,) = MatrixCapsNet.callbacks(settings_of(preset), model, 100)
        found = margin.steps, margin.first, margin.last, margin.rise, margin.loss
        assert found == (700_000, 0.2, 0.99, "official", model.spread)
        # Logits of the published code: lambda (-sum ln var - s (ln 2 pi + 1) 16 - 5000 b).
        constant = np.log(2 * np.pi) + 1
        np.testing.assert_allclose(2 * np.asarray(first.beta_u), 0.5 * constant, rtol=1e-6)
        np.testing.assert_allclose(2 * np.asarray(last.beta_u), 2.0 * constant, rtol=1e-6)
        np.testing.assert_allclose(2 * first.activation_scale * first.beta_a, -5000 * 0.5)
        np.testing.assert_allclose(2 * last.activation_scale * last.beta_a, -5000 * 1.0)
        assert first.options.inverse_temperature_at(0) == pytest.approx(2 * 0.01 * 0.05)
        assert last.options.inverse_temperature_at(0) == pytest.approx(2 * 0.01 / 4 * 0.05)
    else:
        assert (first.options.compete, first.options.damping) == ("all", 0.0)
        assert not np.any(first.beta_u) and not np.any(last.beta_a)
        assert first.options.routing_iterations == {"small": 2, "paper": 3}[preset]
        (margin,) = MatrixCapsNet.callbacks(settings_of(preset), model, 100)
        assert (margin.steps, margin.first, margin.last, margin.rise) == (100, 0.2, 0.9, "linear")
    # Classes have one place.
    assert last.options.compete == "all"
    assert first.options.assignment_temperature == (1 if preset == "official" else 4)
    assert first.normalize_mass == (preset != "official")


def test_layers_below_the_classes_have_their_own_iterations():
    for settings, expected in (
        ({}, [2, 2, 2]),
        ({"routing_iterations": 3}, [3, 3, 3]),
        ({"inner_routing_iterations": 1}, [1, 1, 2]),
        ({"inner_routing_iterations": 3, "routing": "variational"}, [3, 3, 2]),
    ):
        layers = network(**settings).capsule_layers[1:]
        assert [layer.options.routing_iterations for layer in layers] == expected


@pytest.mark.parametrize("preset", ["small", "paper"])
def test_the_control_has_as_many_parameters(preset):
    counts = [
        network(preset, (32, 32, 2), network=kind).count_params() for kind in ("capsules", "cnn")
    ]
    # A unit of the hidden layer that makes them equal has seven hundred of them.
    assert abs(counts[0] - counts[1]) < 400


def test_images_are_standardised_for_capsules_and_control():
    images = np.random.default_rng(0).uniform(size=(2, 16, 16, 1)).astype("float32")
    for kind in ("capsules", "cnn"):
        model = network(network=kind)
        given, darker = (model(x) for x in (images, images / 3))
        for a, b in zip(keras.tree.flatten(given), keras.tree.flatten(darker), strict=True):
            # Float32, a mean and a deviation of 256 pixels.
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_every_network_has_its_own_rate():
    for settings, rate in (
        ({}, 0.02),
        ({"routing": "variational"}, 0.003),
        ({"network": "cnn"}, 0.001),
        ({"network": "cnn", "learning_rate": 0.5}, 0.5),
    ):
        made = optimizer(settings_of(**settings).net, images=100)
        assert float(made.learning_rate) == pytest.approx(rate)
    with pytest.raises(ConfigError, match="matrix.learning_rate must be a number above 0"):
        settings_of(learning_rate=0.0)


def test_what_means_nothing_is_refused():
    for settings, name in (
        ({"network": "cnn", "loss": "margin"}, "loss"),
        ({"network": "cnn", "variance_floor": 0.1}, "variance_floor"),
        ({"network": "cnn", "inner_routing_iterations": 1}, "inner_routing_iterations"),
        ({"units": 3}, "units"),
        ({"network": "cnn", "units": 3, "types": 3}, "types"),
        ({"routing": "variational", "class_temperature": 0.1}, "class_temperature"),
        ({"reconstruction_weight": 0.1}, "reconstruction_weight"),
        ({"decay_rate": 0.1}, "decay_rate"),
    ):
        with pytest.raises(ConfigError, match=f"matrix.{name} has no effect here"):
            settings_of(**settings).check()
    for settings, message in (
        ({"loss": "none"}, "matrix.loss must be 'spread' or 'margin' or 'cross-entropy'"),
        ({"routing": "none"}, "matrix.routing must be 'em' or 'variational'"),
        ({"routing_iterations": 0}, "matrix.routing_iterations must be a whole number of at least"),
        ({"inner_routing_iterations": 0}, "matrix.inner_routing_iterations must be a whole number"),
        ({"variance_floor": 0}, "matrix.variance_floor must be a number above 0"),
        ({"decay_rate": 1.5}, "matrix.decay_rate must be a number above 0 and of at most 1"),
        ({"decay_steps": 0}, "matrix.decay_steps must be a whole number of at least 1, or none"),
        ({"until_accuracy": 2.0}, "matrix.until_accuracy must be a number above 0 and of at most"),
        ({"ema_momentum": 1.0}, "matrix.ema_momentum must be a number of at least 0 and below 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            settings_of(**settings)
    for settings, shape, message in (
        ({}, (12, 20, 1), "images must be at least 13x13 pixels"),
        ({"size": 1}, None, "matrix.coordinates need poses of at least 2x2"),
        ({"routing": "variational", "compute": {"microbatch": 2}}, None, "microbatch must be none"),
        ({"augmentation": "norb"}, (96, 96, 1), "'norb' is for images of 48x48 pixels"),
    ):
        with pytest.raises(ConfigError, match=message):
            settings_of(**settings).check(shape)


@pytest.fixture(scope="module")
def folder(capspoe, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "digits-matrix"
    settings = [part for pair in TINY.items() for part in ("--set", "matrix.{}={}".format(*pair))]
    settings += [
        part for pair in COMPUTE.items() for part in ("--set", "compute.{}={}".format(*pair))
    ]
    done = capspoe("train", "--model", "matrix-capsules", "--dataset", "digits", "--limit", 60,
                   "--epochs", 2, "--batch-size", 20, *settings, "--model-dir", path)  # fmt: skip
    assert done.exit_code == 0, done.output
    return path


@pytest.mark.long
def test_it_is_evaluated_shown_and_served(folder, capspoe, tmp_path, refused):
    found = tmp_path / "figures.json"
    done = capspoe("evaluate", "--model-dir", folder, "--limit", 40, "--json", found)
    assert done.exit_code == 0, done.output
    figures = json.loads(found.read_text())
    assert 0 <= figures["accuracy"]["accuracy"] <= 1
    assert list(figures["logit_changes"]) == ["iteration_1"]
    assert "model matrix-capsules" in capspoe("info", "--model-dir", folder).output
    for command in (("reconstruct",), ("traverse",), ("traverse", "--couplings", "--image", 2)):
        done = capspoe(*command, "--model-dir", folder, "--out", tmp_path / f"{len(command)}.png")
        assert done.exit_code == 0, done.output
    assert re.search(
        r"image 2, label \d: mean coupling to capsule \d by iteration 0.100 0", done.output
    )
    model = keras.models.load_model(folder / "model.keras", compile=False)
    served = tf.saved_model.load(str(folder / "1"))
    pixels = to_pixels(load_images("digits").test.images[:5])
    for name in ("classify", "encode", "reconstruct"):
        expected = getattr(model, name)(pixels)
        for key, value in getattr(served, name)(pixels).items():
            # Float32, in another order.
            np.testing.assert_allclose(value, expected[key], rtol=1e-4, atol=1e-5)
    assert refused(folder / "1")["traverse"] == {"images"}


@pytest.mark.long
def test_an_interrupted_run_goes_on_with_the_margin_where_it_stood(tmp_path, goes_on_alike):
    small = {**TINY, "decoder": "none", "routing_iterations": 1}
    small |= {"compute": {"precision": "float32", "implementation": "fused"}}
    small |= {"epochs": 2, "batch_size": 20, "learning_rate": 0.05}
    settings = settings_of(**small, limit=60, checkpoint_seconds=1e-3)
    goes_on_alike(MatrixCapsNet.of(settings), tmp_path)
