"""Runs of expert neurons: killed, resumed, sampled, judged, served."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

import keras_capsule_poe as kcp
from keras_capsule_poe.data import load_images
from keras_capsule_poe.evaluation.likelihood import likelihood

SETTINGS = (
    "autoencoder.epochs=1", "experts.epochs=6", "autoencoder.filters=8",
    "compute.precision=float32", "compute.implementation=reference", "experts.capsules=3",
    "experts.dim=4", "experts.posterior_states=9", "experts.joint_steps=3",
    "experts.routing_iterations=2", "top.capsules=2", "top.dim=5", "top.epochs=3",
)  # fmt: skip
TRAIN = [
    "train", "--model", "neurons", "--dataset", "digits", "--limit", "150", "--batch-size", "50",
    "--seed", "3", "--deterministic", *(word for name in SETTINGS for word in ("--set", name)),
]  # fmt: skip
CAPSPOE = [sys.executable, "-c", "from keras_capsule_poe.cli.main import main; main()"]


@pytest.fixture(scope="module")
def model(capspoe, tmp_path_factory):
    """Folder of a model that nothing disturbed."""
    folder = tmp_path_factory.mktemp("models") / "neurons"
    done = capspoe(*TRAIN, "--model-dir", folder)
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def run(capspoe):
    def command(*arguments, code=0):
        result = capspoe(*arguments)
        assert result.exit_code == code, result.output
        return result.output

    return command


@pytest.mark.long
def test_it_is_killed_and_goes_on_bit_for_bit(model, tmp_path):
    folder = tmp_path / "neurons"
    options = ["--model-dir", str(folder), "--checkpoint-seconds", "0.05", "--verbose"]
    command = [*CAPSPOE, *TRAIN, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        ends = time.time() + 120
        while not list(folder.glob("experts/checkpoints/step-*/state.json")) and time.time() < ends:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not (folder / "experts" / "done.json").exists(), "it was not killed in time"
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "experts: resumed after step" in done.stdout
    whole, parts = (kcp.load(path) for path in (model, folder))
    for a, b in zip(whole.get_weights(), parts.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_the_second_layer_models_the_first_one_s_neurons_and_joint_samples_come_from_it(model):
    whole = kcp.load(model)
    assert whole.top.machine.kernel.shape == (12 // 4, 2, 5, 4)
    before = np.asarray(whole.draw(5, seed=1, mode="joint")["capsules"])
    whole.top.machine.visible_bias.assign_add(20 * np.ones((3, 4)))
    after = np.asarray(whole.draw(5, seed=1, mode="joint")["capsules"])
    assert set(np.unique(2 * before)) == {0, 1} and np.all(2 * after == 1)


@pytest.mark.long
def test_it_samples(run, model, tmp_path):
    for options in (("--domain", "uniform"), ("--domain", "posterior"), ()):
        picture = tmp_path / "grid.png"
        run("sample", "--plain", "--model-dir", model, "--out", picture, "--rows", 2, *options)
        with Image.open(picture) as shown:
            assert shown.width / 3 == pytest.approx(shown.height / 2, rel=0.02)
    arrays = tmp_path / "samples.npz"
    run("sample", "--model-dir", model, "--out", arrays, "--n", 6)
    with np.load(arrays) as drawn:
        assert sorted(drawn["capsule"][:3].tolist()) == [0, 1, 2]
        own = np.arange(3)[None] == drawn["capsule"][:, None]
        assert np.all(drawn["capsules"][~own] == 0)
    run("sample", "--model-dir", model, "--out", arrays, "--mode", "joint", "--n", 4)
    for start in ("noise", "data"):
        options = ("--mode", "chain", "--steps", 4, "--every", 2, "--n", 3, "--start", start)
        run("sample", "--model-dir", model, "--out", arrays, *options)
        with np.load(arrays) as drawn:
            assert drawn["images"].shape == (3, 3, 28, 28, 1)
            assert np.isfinite(drawn["images"]).all()


@pytest.mark.long
def test_it_is_looked_at_and_judged(run, model, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPSPOE_CACHE", str(tmp_path / "cache"))
    run("reconstruct", "--model-dir", model, "--out", tmp_path / "r.png", "--n", 3)
    run("traverse", "--model-dir", model, "--out", tmp_path / "t.png", "--steps", 3)
    path = tmp_path / "figures.json"
    options = ("--limit", 40, "--samples", 30, "--probe-images", 60, "--json", path)
    options = (*options, "--controls", "none")
    run("evaluate", "--model-dir", model, *options)
    figures = json.loads(path.read_text())["samples"]
    assert {"real", "whole_code", "prior", "uniform", "posterior", "joint"} <= set(figures)
    assert "full_gaussian" not in figures


@pytest.mark.long
def test_it_is_served_without_the_package(run, model):
    assert "model neurons" in run("info", "--model-dir", model)
    program = (
        # What TensorFlow would import and not use is left out, too.
        "import sys\n"
        "hidden = ('keras_capsule_poe', 'jax', 'matplotlib', 'sklearn')\n"
        "sys.modules.update(dict.fromkeys(hidden))\n"
        "import numpy as np, tensorflow as tf\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "print(model.sample(5, 7)['images'].shape, model.sample_joint(2, 7)['images'].shape, "
        "model.encode(np.zeros((2, 28, 28, 1), 'f4'))['capsules'].shape, "
        "model.gibbs(np.zeros((2, 28, 28, 1), 'f4'), 3, 7)['images'].shape)\n"
    )
    command = [sys.executable, "-c", program, str(model / "1")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ})
    shapes = "(5, 28, 28, 1) (2, 28, 28, 1) (2, 3, 4) (2, 28, 28, 1)"
    assert done.stdout.strip() == shapes, done.stderr[-2000:]


@pytest.mark.long
def test_endpoints_check_their_arguments(model, refused):
    found = refused(model / "1")
    assert found["sample_capsule"] == {"capsule", "n"} and found["gibbs"] == {"images", "steps"}
    assert found["sample_joint"] == {"n"} and found["decode"] == {"capsules"}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*it learned nothing")
def test_a_mixture_is_trained_and_its_nats_are_exact():
    data = load_images("digits", limit=150)
    parts = {"autoencoder": {"filters": 8}, "experts": {"capsules": 3, "dim": 4}}
    model = kcp.ProductOfExpertNeurons(preset="mixture", posterior_states=9, **parts)
    histories = model.fit(data.train.images, epochs=2, batch_size=50, verbose=0)
    assert list(histories) == ["autoencoder", "experts"]
    assert model.posteriors.shape == (3, 9, 4)
    found = likelihood(model, data)
    assert found["exact"] == 0 and found["width"] is None and np.isfinite(found["nats"])
