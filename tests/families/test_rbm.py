"""Boltzmann machines of images: trained through the commands, sampled, served, their likelihood.

Each test says in its name or beside it what wrong version it would find out.
"""

import json
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from scipy.special import logsumexp

TRAIN = ("train", "--model", "rbm", "--dataset", "digits", "--limit", "300", "--recipe", "small")
TRAIN += ("--image-size", "8", "--hidden", "10", "--epochs", "25", "--batch-size", "20")
TRAIN += ("--chains", "20", "--deterministic", "--seed", "3", "--checkpoint-seconds", "0.1")
CAPSPOE = [sys.executable, "-c", "from keras_capsule_poe.cli.main import main; main()"]
# Pictures of eight pixels are seven times as large, with gaps of two pixels.
CELL, EDGE = 7 * (8 + 2), 14


@pytest.fixture(scope="module")
def folder(capspoe, tmp_path_factory):
    """Folder of a machine that nothing disturbed."""
    path = tmp_path_factory.mktemp("models") / "digits-rbm"
    done = capspoe(*TRAIN, "--model-dir", path)
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture(scope="module")
def model(folder):
    from keras_capsule_poe.families import get

    return get("rbm").load(folder / "model.keras")


@pytest.fixture(scope="module")
def digits():
    from keras_capsule_poe.data import load_images

    return load_images("digits", image_size=(8, 8), limit=300, seed=3)


def weights(path):
    loaded = keras.models.load_model(path / "rbm" / "model.keras", compile=False)
    return {weight.path: np.asarray(weight) for weight in loaded.weights}


@pytest.mark.long
def test_it_is_killed_and_goes_on_bit_for_bit(folder, tmp_path):
    path = tmp_path / "rbm"
    command = [*CAPSPOE, *TRAIN, "--stage", "rbm", "--model-dir", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        ends = time.time() + 120
        while not list(path.glob("rbm/checkpoints/step-*/state.json")) and time.time() < ends:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert not (path / "rbm" / "done.json").exists(), "it was not killed in time"
    resumed = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert "rbm: resumed after step" in resumed.stdout
    assert "Stopped after rbm; the same command without --stage goes on." in resumed.stdout
    whole, parts = weights(folder), weights(path)
    # Chains that start anew after the kill would differ here, and so would what they trained.
    assert any("particles" in name for name in whole) and set(whole) == set(parts)
    for name in whole:
        np.testing.assert_array_equal(whole[name], parts[name], err_msg=name)


def test_options_of_its_own_are_short_names_of_settings(capspoe, folder, tmp_path):
    shown = " ".join(capspoe("train", "--model", "rbm", "--help").output.split())
    assert "--binarize VALUE Short for --set rbm.binarize=VALUE. [default: stochastic]" in shown
    assert "--visible" in shown and "[pixels|small|features]" in shown
    # Stages that a run of pixels does not have are no stages of it.
    assert "--autoencoder-epochs" not in shown
    features = capspoe("train", "--model", "rbm", "--recipe", "features", "--help").output
    assert "--autoencoder-epochs" in features
    # Other families do not have them.
    assert "--binarize" not in capspoe("train", "--help").output
    settings = json.loads((folder / "run.json").read_text())["config"]["rbm"]
    assert settings["hidden"] == 10 and settings["binarize"] == "threshold"
    assert settings["epochs"] == 25 and settings["batch_size"] == 20


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--binarize", "both"), ["rbm", "`binarize`", "both"]),
        (("--visible", "sounds"), ["`visible`", "sounds"]),
        (("--neurons", "unit", "--binarize", "threshold"), ["rbm.binarize", "'unit'"]),
        (("--set", "autoencoder.epochs=3"), ["autoencoder.epochs", "rbm.visible is 'pixels'"]),
        (("--visible", "features", "--image-size", "8"), ["20x20", "--image-size"]),
        (("--hidden", "0"), ["`hidden`", "0"]),
        (("--stage", "encoder"), ["--stage", "encoder"]),
        (("--rbm-learning-rate", "-1"), ["learning_rate", "-1"]),
    ],
)
def test_settings_that_cannot_be_are_refused_in_a_line(capspoe, tmp_path, arguments, words):
    path = tmp_path / "m"
    train = ("train", "--model", "rbm", "--dataset", "digits", "--model-dir", path)
    result = capspoe(*train, *arguments)
    assert result.exit_code == 2, result.output
    last = result.output.strip().splitlines()[-1]
    assert all(word in last for word in words), result.output
    assert not (path / "rbm").exists() and not (path / "autoencoder").exists()


def test_what_it_would_take(capspoe, tmp_path):
    train = ("train", "--model", "rbm", "--dataset", "digits", "--model-dir", tmp_path / "m")
    shown = capspoe(*train, "--dry-run").output
    assert "visible neurons    784" in shown and "rbm                393,284 parameters" in shown
    assert "autoencoder" not in shown and "features" not in shown
    shown = capspoe(*train, "--recipe", "features", "--dry-run").output
    assert "visible neurons    4608" in shown and "autoencoder" in shown


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
    done("sample", "--out", picture, *mode, *rows, "--seed", 7)
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
    shown = done("sample", "--out", tmp_path / "c.png", "--mode", "single", code=2)
    assert "the model has joint, gibbs, meanfield" in shown


@pytest.mark.long
def test_samples_are_of_the_machine(model):
    """20,000 draws against p(h) by enumeration: a chain at another temperature would differ."""
    machine = model.machine
    states = (np.arange(2**10)[:, None] >> np.arange(10) & 1).astype("float32")
    energy = -np.asarray(machine.hidden_free_energy(states), "float64")
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
    shown = done("traverse", "--out", tmp_path / "t.png", "--steps", 3, "--rows", 4)
    with Image.open(tmp_path / "t.png") as picture:
        assert picture.size == (3 * CELL + EDGE, 4 * CELL + EDGE)
    assert "of 10" in shown
    path = tmp_path / "figures.json"
    options = ("--limit", 40, "--samples", 0, "--probe-images", 100, "--json", path)
    done("evaluate", *options, "--page", tmp_path / "page.html")
    figures = json.loads(path.read_text())
    # Ten neurons hold more of the images than their mean does.
    assert 0 < figures["reconstruction"]["whole_code"] < 0.5
    assert figures["probe"]["capsules"] > 0.3
    assert (tmp_path / "page.html").stat().st_size > 10_000


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


def test_bases_are_of_other_models(done):
    shown = done("likelihood", "--base", "ball", code=2)
    assert "has no `base` to name" in shown.splitlines()[-1]
