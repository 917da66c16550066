"""A model that the package knows nothing of: trained, killed, resumed, sampled, served."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import keras_capsule_poe as kcp
from keras_capsule_poe import registry

TRAIN = ("train", "--model", "toy", "--dataset", "digits", "--limit", "200", "--axes-epochs", "40")
TRAIN += ("--deterministic", "--seed", "3", "--checkpoint-seconds", "0.05")
CAPSPOE = [sys.executable, "-c", "from keras_capsule_poe.cli.main import main; main()"]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """A folder with an installed package that brings the model, for PYTHONPATH."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "toy_model.py").write_text((Path(__file__).parent / "toy.py").read_text())
    info = folder / "toy_model-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[keras_capsule_poe.models]\ntoy = toy_model:LinearCode\n"
    )
    return folder


@pytest.fixture(scope="module")
def environment(plugin):
    path = os.pathsep.join(filter(None, [str(plugin), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


@pytest.fixture(scope="module")
def capspoe(plugin):
    from keras_capsule_poe.cli.main import main

    def run(*arguments, code=0):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        return result.output

    sys.path.insert(0, str(plugin))
    registry._points.cache_clear()
    yield run
    sys.path.remove(str(plugin))
    registry._points.cache_clear()


@pytest.fixture(scope="module")
def model(capspoe, tmp_path_factory):
    """Folder of a model that nothing disturbed."""
    folder = tmp_path_factory.mktemp("models") / "toy"
    capspoe(*TRAIN, "--model-dir", folder)
    return folder


def test_no_file_of_the_package_knows_it():
    import keras_capsule_poe

    root = Path(keras_capsule_poe.__path__[0])
    for folder in (root, root.parent / "cli"):
        for path in folder.rglob("*.py"):
            text = path.read_text().lower()
            assert "linearcode" not in text and '"toy' not in text, path


@pytest.mark.long
def test_it_is_killed_and_goes_on_bit_for_bit(model, environment, tmp_path):
    folder = tmp_path / "toy"
    command = [*CAPSPOE, *TRAIN, "--model-dir", str(folder), "--verbose"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        ends = time.time() + 120
        while not list(folder.glob("axes/checkpoints/step-*/state.json")) and time.time() < ends:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not (folder / "axes" / "done.json").exists(), "it was not killed in time"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "axes: resumed after step" in done.stdout
    whole, parts = (
        json.loads((path / "axes" / "history.json").read_text()) for path in (model, folder)
    )
    for a, b in zip(whole, parts, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}
    whole, parts = (kcp.load(path).get_weights() for path in (model, folder))
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_new_process_loads_it(model, environment):
    """Rejects a class that only a command imports."""
    program = "import sys, keras_capsule_poe as kcp; print(kcp.load(sys.argv[1]).sample(3))"
    command = [sys.executable, "-c", program, str(model)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert "images: (3, 28, 28, 1)" in done.stdout, done.stderr[-2000:]


def test_it_shows_up_in_help_with_the_defaults_of_its_recipe(capspoe):
    shown = " ".join(capspoe("train", "--model", "toy", "--help").split())
    assert "[capsules|" in shown and "|toy]" in shown and "[plain|wide]" in shown
    assert "--axes-learning-rate" in shown and "--encoder-epochs" not in shown
    assert "toy" in capspoe("train", "--help")


def test_its_settings_are_its_constructor_s(capspoe, tmp_path):
    train = ("train", "--model", "toy", "--dataset", "digits", "--model-dir", tmp_path / "m")
    refused = capspoe(*train, "--set", "axes.number=0", code=2)
    assert "axes.number must be a whole number of at least 1" in refused
    assert "no part `encoder`" in capspoe(*train, "--config", write(tmp_path), code=2)
    assert not (tmp_path / "m").exists()
    wide = capspoe(*train, "--recipe", "wide", "--dry-run")
    assert f"{28 * 28 * 8:,} parameters" in wide


@pytest.mark.measured
def test_its_steps_are_measured(capspoe, tmp_path):
    train = ("train", "--model", "toy", "--dataset", "digits", "--model-dir", tmp_path / "m")
    shown = capspoe(*train, "--limit", 60, "--dry-run")
    assert re.search(r"  axes +\d+ epochs, \d+ steps of \d+ ms: ", shown), shown
    assert not (tmp_path / "m").exists()


def test_its_images_may_be_small(capspoe, tmp_path):
    train = ("train", "--model", "toy", "--dataset", "digits", "--model-dir", tmp_path / "m")
    assert "image              8 x 8 x 1" in capspoe(*train, "--image-size", 8, "--dry-run")


def write(folder):
    path = folder / "settings.toml"
    path.write_text("[encoder]\ncapsules = 3\n")
    return path


def test_it_samples_and_reconstructs(capspoe, model, tmp_path):
    picture, arrays = tmp_path / "grid.png", tmp_path / "samples.npz"
    capspoe("sample", "--model-dir", model, "--out", picture, "--rows", 2, "--plain")
    with Image.open(picture) as shown:
        assert shown.size == (4 * 60 + 4, 2 * 60 + 4)
    capspoe("sample", "--model-dir", model, "--out", arrays, "--n", 6)
    with np.load(arrays) as drawn:
        assert drawn["images"].shape == (6, 28, 28, 1)
        assert sorted(drawn["capsule"][:4].tolist()) == [0, 1, 2, 3]
    capspoe("reconstruct", "--model-dir", model, "--out", tmp_path / "r.png", "--n", 5)
    capspoe("traverse", "--model-dir", model, "--out", tmp_path / "t.png", "--steps", 3)


@pytest.mark.long
def test_it_is_evaluated(capspoe, model, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPSPOE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "figures.json"
    options = ("--limit", 40, "--samples", 30, "--probe-images", 60, "--json", path)
    options = (*options, "--controls", "trained", "--vae-seconds", 0.2)
    capspoe("evaluate", "--model-dir", model, *options)
    figures = json.loads(path.read_text())
    # Four axes hold more of the images than their mean alone does.
    assert 0 < figures["reconstruction"]["whole_code"] < 0.7
    assert {"real", "whole_code", "single", "variational_autoencoder"} <= set(figures["samples"])


@pytest.mark.long
def test_it_is_shown_and_served(capspoe, model):
    shown = capspoe("info", "--model-dir", model)
    assert "model toy" in shown and "number 4" in shown
    capspoe("export", "--model-dir", model)
    program = (
        # What TensorFlow would import and not use is left out, too.
        "import sys\n"
        "hidden = ('keras_capsule_poe', 'jax', 'matplotlib', 'sklearn')\n"
        "sys.modules.update(dict.fromkeys(hidden))\n"
        "import numpy as np, tensorflow as tf\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "print(model.sample(5, 7)['images'].shape, model.encode(np.zeros((2, 28, 28, 1), 'f4'))"
        "['capsules'].shape)\n"
    )
    command = [sys.executable, "-c", program, str(model / "2")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "(5, 28, 28, 1) (2, 4, 1)", done.stderr[-2000:]
