"""TensorFlow's start-up lines are not shown, all others are; no warnings of traces of many models.

Rejected: an error that is swallowed; a filter that drops the warnings of a user's own functions.
"""

import logging
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from keras_capsule_poe import _startup
from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data.mapping import map_batches

KNOWN = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795878087.857252   25097 cudart_stub.cc:31] Could not find cuda drivers
E0000 00:00:1732000000.000000  1 cuda_dnn.cc:8579] Unable to register cuDNN factory: Attempting to
W0000 00:00:1732000000.000000  1 computation_placer.cc:177] computation placer already registered
2026-11-28 14:56:38.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow
"""
UNKNOWN = """\
E0000 00:00:1732000000.000000  1 cuda_executor.cc:1228] INTERNAL: CUDA Runtime error: no memory
2026-11-28 14:56:38.123456: E tensorflow/core/thing.cc:9] the disk is full
a line of another library
"""


@pytest.mark.parametrize("fails", [False, True])
def test_known_lines_alone_are_left_out(capfd, fails):
    try:
        with _startup.without_known_lines():
            os.write(2, (KNOWN + UNKNOWN).encode())
            if fails:
                raise ImportError
    except ImportError:
        pass
    shown = capfd.readouterr().err
    assert shown == (KNOWN + UNKNOWN if fails else UNKNOWN)


def test_an_import_of_tensorflow_writes_nothing():
    code = "import keras_capsule_poe as kcp; kcp.ConvAutoencoder(filters=2)"
    env = {name: value for name, value in os.environ.items() if not name.startswith("TF_CPP")}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_chosen_log_level_stays(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow")
    monkeypatch.setenv(_startup.LEVEL, "0")
    before = list(sys.meta_path)
    _startup.prepare()
    assert sys.meta_path == before


def test_warnings_of_traces_are_those_of_the_user():
    def record(text):
        return logging.LogRecord("tensorflow", logging.WARNING, "", 0, text, (), None)

    text = "5 out of the last 7 calls to {} triggered tf.function retracing. Tracing is expensive"
    assert _startup._is_of_use(record(text.format("<function mine at 0x7f>")))
    keras = "<function TensorFlowTrainer.make_predict_function.<locals>.one_step at 0x7f>"
    assert not _startup._is_of_use(record(text.format(keras)))
    assert _startup._is_of_use(record("TensorFlowTrainer failed"))


def test_graphs_of_several_models_are_counted_alone(caplog):
    """TensorFlow counts the traces of one code, whichever model it belongs to."""

    def graph(k):
        return lambda x: x + k

    logger = logging.getLogger("tensorflow")
    # The commands, and these tests, import TensorFlow with another level.
    caplog.set_level(logging.WARNING, "tensorflow")
    logger.addHandler(caplog.handler)
    try:
        for k in range(9):
            compiled(graph(k))(tf.ones(2))
            map_batches(graph(k), tf.ones((2, 2)).numpy())
        assert "retracing" not in caplog.text
        for k in range(9):
            tf.function(graph(k))(tf.ones(2))
        assert "retracing" in caplog.text, "TensorFlow no longer warns: nothing is left to do"
    finally:
        logger.removeHandler(caplog.handler)
