"""Whole runs: they learn, resume, stop at NaN, and survive an interrupt."""

import json
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest

from keras_capsule_poe.data import load_images
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.training import Reporter, RunConfig, train

SILENT = {"write": lambda line: None}


def small_config(**settings):
    config = RunConfig()
    values = {
        "dataset": "digits",
        "autoencoder.filters": 8,
        "autoencoder.precision": "float32",
        "encoder.capsules": 4,
        # The plain form has the smaller graph, and the graphs are what takes time here.
        "encoder.implementation": "plain",
        "decoder.implementation": "plain",
        **{f"{stage}.batch_size": 50 for stage in ("autoencoder", "encoder", "decoder")},
        **{f"{stage}.epochs": 2 for stage in ("autoencoder", "encoder", "decoder")},
        **settings,
    }
    for name, value in values.items():
        config.set(name, value)
    return config


def digits(limit):
    return lambda: load_images("digits", limit=limit)


def folder_of(path):
    """A stand-in for a run where only its folders are asked for."""
    return SimpleNamespace(stage_folder=lambda stage: path / stage)


def last_epoch(folder, stage):
    return json.loads((folder / stage / "history.json").read_text())[-1]


def test_digits_end_to_end_learns(tmp_path):
    config = small_config(
        **{
            "autoencoder.epochs": 6, "encoder.epochs": 8, "decoder.epochs": 8,
            "autoencoder.filters": 16, "encoder.capsules": 8,
            "encoder.implementation": "streamed", "decoder.implementation": "streamed",
        }
    )  # fmt: skip
    train(config, tmp_path, digits(400), Reporter(**SILENT))
    # An untrained model decodes the mean (relative error 1.0 of the centred primary capsules)
    # or noise; the thresholds lie well below.
    assert last_epoch(tmp_path, "autoencoder")["held_out_relative_error"] < 0.3
    assert last_epoch(tmp_path, "decoder")["held_out_relative_error"] < 0.9


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
    sys.path.insert(0, sys.argv[1])
    import numpy as np
    import test_runs as runs
    from keras_capsule_poe.training import Reporter, train
    from keras_capsule_poe.families.capsule_poe.parts import load_part

    folder = Path(sys.argv[2])
    config = runs.small_config(deterministic=True, **{"decoder.keep": 2})
    train(config, folder / "whole", runs.digits(150), Reporter(**runs.SILENT))
    for stage in ("autoencoder", "encoder", "decoder"):
        try:
            interrupting = runs.InterruptAt(stage, 1, 2)
            train(config, folder / "parts", runs.digits(150), interrupting)
            raise SystemExit("not interrupted")
        except KeyboardInterrupt:
            assert list((folder / "parts" / stage / "checkpoints").glob("*.index"))
    train(config, folder / "parts", runs.digits(150), Reporter(**runs.SILENT))
    for stage in ("autoencoder", "encoder", "decoder"):
        whole, parts = (
            load_part(runs.folder_of(folder / name), stage).get_weights()
            for name in ("whole", "parts")
        )
        assert whole and len(whole) == len(parts)
        for a, b in zip(whole, parts):
            np.testing.assert_array_equal(a, b, err_msg=stage)
    print("equal")
    """
)


def test_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path):
    # In a process of its own: TensorFlow's determinism cannot be switched off again.
    here = __file__.rsplit("/", 1)[0]
    command = [sys.executable, "-c", RESUME, here, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip().endswith("equal"), done.stderr[-3000:]


@pytest.mark.parametrize("stage", ["autoencoder", "encoder"])
def test_nan_stops_and_names_stage_and_step(tmp_path, stage):
    config = small_config(**{f"{stage}.learning_rate": 1e30})
    with pytest.raises(RunFailed, match=rf"{stage} diverged.*nan.*step \d+ of 2"):
        train(config, tmp_path, digits(100), Reporter(**SILENT))
    assert not (tmp_path / stage / "done.json").exists()
    assert not (tmp_path / stage / "model.keras").exists()


def test_stage_stops_there_and_fresh_starts_over_from_there(tmp_path):
    config = small_config()
    train(config, tmp_path, digits(100), Reporter(**SILENT), stage="encoder")
    assert (tmp_path / "encoder" / "done.json").exists()
    assert not (tmp_path / "decoder").exists()
    kept = (tmp_path / "autoencoder" / "model.keras").stat().st_mtime_ns
    config.encoder.l2 = 0.01
    with pytest.raises(RunFailed, match="encoder.l2: 0.001 -> 0.01"):
        train(config, tmp_path, digits(100), Reporter(**SILENT))
    train(config, tmp_path, digits(100), Reporter(**SILENT), stage="encoder", fresh=True)
    assert (tmp_path / "autoencoder" / "model.keras").stat().st_mtime_ns == kept
    assert json.loads((tmp_path / "run.json").read_text())["config"]["encoder"]["l2"] == 0.01


def test_other_images_are_refused(tmp_path):
    config = small_config()
    train(config, tmp_path, digits(100), Reporter(**SILENT), stage="autoencoder")
    with pytest.raises(RunFailed, match="images"):
        train(config, tmp_path, digits(120), Reporter(**SILENT))


@pytest.mark.parametrize("shape", [(20, 23, 1), (31, 28, 3)])
def test_rgb_and_odd_sizes_run_through_all_stages(tmp_path, shape):
    random = np.random.default_rng(0)
    path = tmp_path / "images.npz"
    np.savez(path, images=random.integers(0, 256, size=(60, *shape)).astype("uint8"))
    config = small_config(dataset=str(path), **{"encoder.epochs": 1, "decoder.epochs": 1})
    train(config, tmp_path / "m", lambda: load_images(str(path)), Reporter(**SILENT))
    import keras

    product = keras.models.load_model(tmp_path / "m" / "model.keras", compile=False)
    assert product.sample(2, seed=0)["images"].shape == (2, *shape)
