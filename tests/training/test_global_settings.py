"""Keras' and TensorFlow's global settings: what cannot be trained under is refused at the start.

Rejected: a whole training that cannot be exported; other bits where fewer processors are allowed.
"""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_capsule_poe as kcp
from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.training.run import fix_threads


@pytest.fixture(params=["image_data_format", "floatx", "dtype_policy"])
def setting(request):
    """Name of a global setting of Keras that has another value than usual."""
    name = request.param
    get, change = getattr(keras.config, name), getattr(keras.config, f"set_{name}")
    usual = get()
    change("channels_first" if name == "image_data_format" else "float64")
    yield name
    change(usual)


def test_they_are_refused_before_anything_is_trained(capspoe, setting, tmp_path):
    wanted = "channels_last" if setting == "image_data_format" else "float32"
    message = f"`{setting}` must be '{wanted}' to train a model"
    with pytest.raises(ConfigError, match=message):
        kcp.train("digits", model="rbm", limit=50, verbose=0, folder=tmp_path / "m")
    with pytest.raises(ConfigError, match=message):
        kcp.ImageBoltzmannMachine(hidden=3).fit(np.zeros((20, 28, 28), "uint8"), verbose=0)
    shown = capspoe("train", "--dataset", "digits", "--model", "rbm", "--model-dir", tmp_path / "m")
    assert shown.exit_code == 2 and message in shown.output
    assert not (tmp_path / "m").exists()
    if setting != "dtype_policy":
        # Convolutions would take rows for channels.
        with pytest.raises(ConfigError, match=message):
            kcp.MatrixCapsNet.from_recipe("small", (28, 28, 1), 10)


def test_sums_are_divided_for_all_processors(monkeypatch):
    """However many of them the process may use, which is what TensorFlow goes by."""
    threading, found, lines = tf.config.threading, [0], []
    monkeypatch.setattr(threading, "get_intra_op_parallelism_threads", lambda: found[-1])
    monkeypatch.setattr(threading, "set_intra_op_parallelism_threads", found.append)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    limits = []
    monkeypatch.setattr("threadpoolctl.threadpool_limits", limits.append)
    fix_threads(lines.append)
    fix_threads(lines.append)
    assert found == [0, 6] and not lines
    assert limits == 2 * [{"blas": 6, "openmp": 1}]
    found[:] = [0]

    def started(number):
        raise RuntimeError("cannot be modified after initialization")

    monkeypatch.setattr(threading, "set_intra_op_parallelism_threads", started)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    fix_threads(lines.append)
    assert "started with 1 of 6 threads" in lines[0]
