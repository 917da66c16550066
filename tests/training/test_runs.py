"""Whole runs: they learn, resume, stop at NaN, and survive an interrupt."""

import dataclasses
import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe import registry
from keras_capsule_poe.data import load_images
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.training import Reporter, train

SILENT = {"verbose": 0}
TRAINED = ("autoencoder", "encoder", "decoder")


def small_config(**settings):
    config = registry.settings("capsules")
    values = {
        "dataset": "digits",
        "autoencoder.filters": 8,
        "compute.precision": "float32",
        "encoder.capsules": 4,
        # The reference and few iterations have the smaller graph, and graphs are what takes time
        # here.
        "encoder.routing_iterations": 2,
        "compute.implementation": "reference",
        **{f"{stage}.batch_size": 50 for stage in TRAINED},
        **{f"{stage}.epochs": 2 for stage in TRAINED},
        **settings,
    }
    for name, value in values.items():
        config.set(name, value)
    return config


def digits(limit):
    return lambda: load_images("digits", limit=limit)


def last_epoch(folder, stage):
    return json.loads((folder / stage / "history.json").read_text())[-1]


@pytest.mark.long
def test_digits_end_to_end_learns(tmp_path):
    config = small_config(
        **{
            # The first 100 steps of the encoder change little.
            "autoencoder.epochs": 6, "encoder.epochs": 60, "decoder.epochs": 20,
            "autoencoder.filters": 16, "encoder.capsules": 8,
            "compute.implementation": "fused",
        }
    )  # fmt: skip
    data = digits(400)()
    # Of black images every relative error is infinite: whatever is watched, it is not these.
    black = dataclasses.replace(data.test, images=np.zeros_like(data.test.images))
    data = dataclasses.replace(data, test=black)
    train(registry.untrained(config), tmp_path, lambda: data, Reporter(**SILENT), stage="decoder")
    # An untrained model decodes the mean (relative error 1.0 of the centred primary capsules)
    # or noise; the thresholds lie well below.
    assert last_epoch(tmp_path, "autoencoder")["val_relative_error"] < 0.3
    assert last_epoch(tmp_path, "decoder")["val_relative_error"] < 0.9


class InterruptAt(Reporter):
    """Presses Ctrl-C at one step."""

    def __init__(self, stage, epoch, step):
        super().__init__(**SILENT)
        self.at = (stage, epoch, step)

    def step(self, stage, epoch, step, logs):
        if (stage, epoch, step) == self.at:
            raise KeyboardInterrupt


RESUME = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from keras_capsule_poe.cli.terminal import import_tensorflow
    import_tensorflow()
    sys.path.insert(0, sys.argv[1])
    import keras
    import test_runs as runs
    from keras_capsule_poe import registry
    from keras_capsule_poe.training import Reporter, train

    folder = Path(sys.argv[2])
    config = runs.small_config(deterministic=True, checkpoint_seconds=1e-6)
    model = registry.untrained(config)
    until = {"stage": "decoder"}  # what comes after it only writes files
    train(model, folder / "whole", runs.digits(150), Reporter(**runs.SILENT), **until)
    for stage in runs.TRAINED:
        try:
            # The second epoch's second step of three: within an epoch.
            interrupting = runs.InterruptAt(stage, 1, 2)
            train(model, folder / "parts", runs.digits(150), interrupting)
            raise SystemExit("not interrupted")
        except KeyboardInterrupt:
            kept = sorted((folder / "parts" / stage / "checkpoints").iterdir())
            assert kept[-1].name == "step-000000004", kept
    train(model, folder / "parts", runs.digits(150), Reporter(**runs.SILENT), **until)
    for stage in runs.TRAINED:
        whole, parts = (folder / name / stage for name in ("whole", "parts"))
        read = [runs.json.loads((path / "history.json").read_text()) for path in (whole, parts)]
        for a, b in zip(*read, strict=True):
            assert {**a, "seconds": 0} == {**b, "seconds": 0}, (stage, a, b)
        whole, parts = (
            keras.models.load_model(path / "model.keras", compile=False).get_weights()
            for path in (whole, parts)
        )
        assert whole
        for a, b in zip(whole, parts, strict=True):
            runs.np.testing.assert_array_equal(a, b, err_msg=stage)
    whole, parts = (runs.np.load(folder / n / "decoder/codes.npz") for n in ("whole", "parts"))
    assert set(whole) == set(parts) and len(whole) == 3
    for name in whole:
        runs.np.testing.assert_array_equal(whole[name], parts[name], err_msg=name)
    print("equal")
    """
)


@pytest.mark.long
def test_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path):
    # In a process of its own: TensorFlow's determinism cannot be switched off again.
    here = __file__.rsplit("/", 1)[0]
    command = [sys.executable, "-c", RESUME, here, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip().endswith("equal"), done.stderr[-3000:]


@pytest.mark.some(2)
@pytest.mark.parametrize("stage", ["autoencoder", "encoder"])
def test_nan_stops_and_names_stage_and_step(tmp_path, stage):
    config = small_config(**{f"{stage}.learning_rate": 1e30})
    with pytest.raises(RunFailed, match=rf"{stage} diverged.*nan.*step \d+ of 2") as failed:
        train(registry.untrained(config), tmp_path, digits(100), Reporter(**SILENT))
    assert failed.value.hint == f"learning_rate:{stage}"
    assert not (tmp_path / stage / "done.json").exists()
    assert not (tmp_path / stage / "model.keras").exists()


def test_a_number_that_was_given_is_named_where_training_comes_to_nothing(tmp_path):
    # Not the learning rate is to blame, and who gave the number should hear of it.
    config = small_config(
        **{"encoder.use_bias": True, "encoder.bias_rate": 1e38, "encoder.learning_rate": 0.1}
    )
    with pytest.raises(RunFailed, match=r"encoder diverged.*may be why: encoder.*\.$") as failed:
        train(registry.untrained(config), tmp_path, digits(100), Reporter(**SILENT))
    assert "encoder.bias_rate=1e+38" in str(failed.value)
    assert "encoder.learning_rate=" not in str(failed.value)
    assert failed.value.hint == "learning_rate:encoder"


@pytest.mark.long
def test_rgb_of_odd_sizes_run_through_all_stages(tmp_path):
    shape = (31, 22, 3)
    random = np.random.default_rng(0)
    path = tmp_path / "images.npz"
    np.savez(path, images=random.integers(0, 256, size=(60, *shape)).astype("uint8"))
    config = small_config(dataset=str(path), **{f"{stage}.epochs": 1 for stage in TRAINED})
    train(
        registry.untrained(config),
        tmp_path / "m",
        lambda: load_images(str(path)),
        Reporter(**SILENT),
    )
    product = kcp.load(tmp_path / "m")
    assert product.sample(2, seed=0)["images"].shape == (2, *shape)
