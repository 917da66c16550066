"""Restricted Boltzmann machines of images: over pixels and features, trained, sampled, measured.

Each test says in its name or beside it what wrong version it would find out.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from scipy.special import logsumexp

from keras_capsule_poe import (
    ConvAutoencoder,
    ImageBoltzmannMachine,
    RestrictedBoltzmannMachine,
    registry,
)
from keras_capsule_poe.core.numerics import step_seed
from keras_capsule_poe.data import load_images
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.training import Reporter, train

KINDS = ("stochastic", "threshold", "unit", "features")
# Pictures of eight pixels are seven times as large, with gaps of two pixels.
CELL, EDGE = 7 * (8 + 2), 14


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


def untrained():
    """A machine of ten neurons on 300 digits of 8 x 8 pixels, made binary."""
    return registry.create(
        "rbm",
        "small",
        dataset="digits",
        limit=300,
        image_size=8,
        hidden=10,
        persistent_chains=20,
        rbm={"epochs": 25, "batch_size": 20},
        deterministic=True,
        seed=3,
        checkpoint_seconds=1e-3,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of a machine that nothing disturbed."""
    path = tmp_path_factory.mktemp("models") / "digits-rbm"
    train(untrained(), path, reporter=Reporter(verbose=0))
    return path


@pytest.fixture(scope="module")
def model(folder):
    return keras.models.load_model(folder / "model.keras", compile=False)


@pytest.fixture(scope="module")
def digits():
    return load_images("digits", image_size=(8, 8), limit=300, seed=3)


@pytest.mark.long
def test_an_interrupted_training_goes_on_bit_for_bit(stopped, folder, tmp_path):
    stopped(untrained(), tmp_path / "m", "rbm")
    assert list((tmp_path / "m" / "rbm" / "checkpoints").glob("step-*"))
    train(untrained(), tmp_path / "m", reporter=Reporter(verbose=0), stage="rbm")
    whole, parts = (
        keras.models.load_model(path / "rbm" / "model.keras", compile=False).weights
        for path in (folder, tmp_path / "m")
    )
    # Chains that start anew would differ here, and so would what they trained.
    assert any("particles" in weight.path for weight in whole)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=one.path)


@pytest.mark.long
def test_fit_gives_the_weights_of_the_command(folder, digits):
    """Also of the chains from which it samples."""
    model = untrained()
    # The images were limited when they were loaded.
    model.settings.forget_images()
    model.fit(digits, verbose=0)
    kept = keras.models.load_model(folder / "model.keras", compile=False)
    assert model.image_shape == (8, 8, 1) and model.binarize == "threshold"
    for one, other in zip(model.weights, kept.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=one.path)


def test_options_are_short_names_of_settings(capspoe):
    shown = " ".join(capspoe("train", "--model", "rbm", "--help").output.split())
    assert "--binarize VALUE Short for --set rbm.binarize=VALUE. [default: stochastic]" in shown
    assert "--visible" in shown and "[pixels|small|features]" in shown
    # A machine of pixels does not have these stages.
    assert "--autoencoder-epochs" not in shown
    features = capspoe("train", "--model", "rbm", "--recipe", "features", "--help").output
    assert "--autoencoder-epochs" in features


def test_outline_has_the_parts_that_are_trained():
    shapes, parameters = ImageBoltzmannMachine.outline(registry.settings("rbm"), (28, 28, 1))
    assert shapes["visible neurons"] == (784,) and parameters == {"rbm": 393_284}
    features = registry.settings("rbm", "features")
    shapes, parameters = ImageBoltzmannMachine.outline(features, (28, 28, 1))
    assert shapes["visible neurons"] == (4608,) and set(parameters) == {"autoencoder", "rbm"}


def test_it_says_what_it_is(done, folder):
    shown = done("info")
    assert "model rbm" in shown and "hidden 10" in shown and "free_energy_gap" in shown
    # Nothing of what it stands on without features, nor of other ways to train.
    assert "autoencoder" not in shown and "temperatures" not in shown
    card = json.loads((folder / "1" / "model_card.json").read_text())
    assert card["capsules"] == [1, 10] and card["endpoints"]["gibbs"] == ["images", "steps", "seed"]


def pictured(path, number, columns):
    """The images of a picture of images 8 x 8."""
    with Image.open(path) as stored:
        shown = np.asarray(stored, "float64") / 255
    corners = [
        (EDGE + CELL * row, EDGE + CELL * column) for row, column in np.ndindex(number, columns)
    ]
    return np.stack([shown[y : y + 56 : 7, x : x + 56 : 7] for y, x in corners])


@pytest.mark.long
@pytest.mark.parametrize(
    "mode, columns",
    [(("--mode", "joint"), 20), (("--mode", "gibbs", "--start", "data", "--steps", "7"), 12)],
)
def test_picture_arrays_and_saved_model_hold_the_same_images(
    done, folder, digits, tmp_path, mode, columns
):
    picture, npz = tmp_path / "a.png", tmp_path / "a.npz"
    is_chain = "gibbs" in mode
    rows = () if is_chain else ("--rows", 2)
    done("sample", "--out", picture, "--plain", *mode, *rows, "--seed", 7)
    done("sample", "--out", npz, *mode, "--n", columns if is_chain else 2 * columns, "--seed", 7)
    with np.load(npz) as stored:
        images = stored["images"]
    served = tf.saved_model.load(str(folder / "1"))
    if is_chain:
        assert images.shape == (8, 12, 8, 8, 1)
        start = digits.test.images[:12] / np.float32(255)
        # Were the draws of a step those of the one before, the last states would differ.
        expected = np.stack([served.gibbs(start, step, 7)["images"] for step in range(8)])
        assert set(np.unique(expected.round(5))) == {0, 1}
        assert np.abs(expected[7] - expected[6]).mean() > 0.02
        assert np.abs(expected[7] - served.gibbs(start, 7, 8)["images"]).mean() > 0.02
    else:
        expected = served.sample(2 * columns, 7)["images"]
        assert np.abs(expected - served.sample(2 * columns, 8)["images"]).mean() > 0.01
    np.testing.assert_allclose(images, expected, atol=1e-5)
    flat = images.reshape(-1, 8, 8)
    shown = pictured(picture, len(flat) // columns, columns)
    np.testing.assert_allclose(shown, flat, atol=0.5 / 255 + 1e-5)


def test_burn_in_and_noise(done, tmp_path):
    whole, late = tmp_path / "a.npz", tmp_path / "b.npz"
    options = ("--mode", "gibbs", "--n", 5, "--seed", 1)
    done("sample", "--out", whole, *options, "--steps", 6, "--thin", 2)
    done("sample", "--out", late, *options, "--burn-in", 2, "--steps", 4, "--thin", 2)
    with np.load(whole) as a, np.load(late) as b:
        assert a["step"].tolist() == [0, 2, 4, 6] and b["step"].tolist() == [2, 4, 6]
        np.testing.assert_array_equal(a["images"][1:], b["images"])
    done("sample", "--out", tmp_path / "c.png", "--mode", "meanfield")


@pytest.mark.long
def test_samples_are_of_the_machine(model):
    """20,000 draws against p(h) by enumeration: a chain at another temperature would differ."""
    machine = model.machine
    states = (np.arange(2**10)[:, None] >> np.arange(10) & 1).astype("float32")
    centred = machine.harmonium().transposed()
    energy = -np.asarray(centred.free_energy(states - machine.hidden_offset), "float64")
    p = np.exp(energy - logsumexp(energy))
    mean = p @ states
    drawn = np.asarray(model.draw(20_000, seed=5)["capsules"])[:, 0]
    assert set(np.unique(drawn)) == {0, 1}
    error = np.abs(drawn.mean(axis=0) - mean)
    # Twenty particles start 20,000 chains of 100 steps; half of that noise would be exact draws'.
    assert error.max() < 0.03
    assert np.abs(mean - 0.5).max() > 0.1


def test_codes_are_probabilities_of_hidden_neurons(model, digits):
    images = digits.test.images[:5] / np.float32(255)
    code = model.code(images)
    v = (images.reshape(5, -1) > 0.5).astype("float32")
    np.testing.assert_allclose(code["capsules"][:, 0], model.machine(v), atol=1e-6)
    np.testing.assert_allclose(code["free_energy"], model.machine.free_energy(v), rtol=1e-5)
    # A code of zeros and ones is decoded to the means that Gibbs sampling draws pixels from.
    h = np.eye(10, dtype="float32")[:4]
    decoded = np.asarray(model.decode(h[:, None])["images"]).reshape(4, -1)
    on = np.stack([np.ones(64), np.zeros(64)]).astype("float32")
    for state, mean in zip(h, decoded):
        # p(v_i = 1 | h) by the energies of v_i = 1 and 0, the others held.
        i = int(np.argmax(np.abs(mean - 0.5)))
        pair = on.copy()
        pair[:, :] = on[1]
        pair[0, i] = 1
        x, y = pair, np.repeat(state[None], 2, axis=0)
        lower = _energy(model.machine, x, y)
        assert mean[i] == pytest.approx(1 / (1 + np.exp(lower[0] - lower[1])), abs=1e-5)


def _energy(machine, v, h):
    w, a, b, mu, centre = (
        np.asarray(part, "float64")
        for part in (
            machine.kernel,
            machine.hidden_bias,
            machine.visible_bias,
            machine.visible_offset,
            machine.hidden_offset,
        )
    )
    x, y = v - mu, h - centre
    return -(x @ b + np.sum(y * (a + x @ w.T), axis=-1))


def test_what_judges_samples_finds_its_own(model, digits):
    from keras_capsule_poe.evaluation.baselines import baseline_set
    from keras_capsule_poe.evaluation.generative import image_sources

    baselines = baseline_set("simple", model)
    sources = image_sources(model, digits, test_images=6, samples=5, seed=0, baselines=baselines)
    assert list(sources)[:3] == ["real", "whole_code", "joint"]
    for name, number in (("whole_code", 6), ("joint", 5), ("full_gaussian", 5)):
        images, capsule = sources[name]()
        assert images.shape == (number, 8, 8, 1) and capsule is None
        assert images.min() >= 0 and images.max() <= 1


@pytest.mark.long
def test_it_is_looked_at_and_evaluated(done, tmp_path):
    shown = done("reconstruct", "--out", tmp_path / "r.png", "--n", 5)
    assert "r.png" in shown
    shown = done("traverse", "--out", tmp_path / "t.png")
    assert "how each neuron changes the image" in shown
    path = tmp_path / "figures.json"
    options = ("--limit", 40, "--samples", 0, "--probe-images", 100, "--json", path)
    done("evaluate", *options)
    done("report", "--metrics", path, "--limit", 40, "--out", tmp_path / "page.html")
    figures = json.loads(path.read_text())
    # Ten neurons hold more of the images than their mean does.
    assert 0 < figures["reconstruction"]["whole_code"] < 0.5
    assert figures["probe"]["capsules"] > 0.3
    assert (tmp_path / "page.html").stat().st_size > 10_000


@pytest.mark.long
def test_it_is_exported_again(done, folder, refused):
    done("export")
    served = tf.saved_model.load(str(folder / "2"))
    images = np.zeros((3, 8, 8, 1), "float32")
    assert served.encode(images)["capsules"].shape == (3, 1, 10)
    assert served.gibbs(images[:0], 2, 0)["images"].shape == (0, 8, 8, 1)
    assert refused(folder / "2")["gibbs"] == {"images", "steps"}


def test_the_likelihood_is_that_of_enumeration(done, model, digits, tmp_path):
    path = tmp_path / "figures.json"
    options = ("--temperatures", 300, "--chains", 200, "--images", 50, "--seed", 1, "--json", path)
    shown = done("likelihood", *options)
    figures = json.loads(path.read_text())
    v = (digits.test.images[:50].reshape(50, -1) > 127).astype("float64")
    states = (np.arange(2**10)[:, None] >> np.arange(10) & 1).astype("float64")
    machine = model.machine
    # log Z by the hidden side, by hand; visible neurons summed out one by one.
    field = [np.asarray(part, "float64") for part in (machine.visible_bias, machine.kernel)]
    y = states - np.asarray(machine.hidden_offset)
    psi = field[0] + y @ field[1]
    mu = np.asarray(machine.visible_offset, "float64")
    logs = y @ np.asarray(machine.hidden_bias, "float64") - psi @ mu
    logs = logs + np.logaddexp(0, psi).sum(axis=-1)
    log_z = logsumexp(logs)
    energies = np.stack([logsumexp(-_energy(machine, row, states)) for row in v])
    assert figures["exact"] == pytest.approx(log_z, abs=2e-3)
    assert figures["nats"] == pytest.approx(energies.mean() - log_z, abs=2e-3)
    # Without images' spread an error would be zero here.
    spread = energies.std(ddof=1) / np.sqrt(50)
    assert figures["nats_error"] == pytest.approx(spread, rel=1e-3)
    for side in ("forward", "reverse"):
        assert 0 < figures[f"{side}_error"] < 0.2
        assert abs(figures[side] - log_z) < 5 * figures[f"{side}_error"]
        assert f"{side}    {figures[side]:.3f} +-" in shown
    assert figures["width"] == pytest.approx(figures["reverse"] - figures["forward"])
    assert f"exact      {log_z:.3f}"[:-1] in shown and "nats an image, of 50" in shown
    assert "64 binary visible neurons, one where a pixel is above a half" in shown
