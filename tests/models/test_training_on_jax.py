"""Steps that move variables by hand are fitted on Jax, too, to the numbers of TensorFlow.

Rejected: a step compiled with the counter or the weights that there were when it was traced;
one whose routing bias, chains or momentum stay behind; dropout that drops the same each time;
weights that two models share and one of them gives away.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_capsule_poe import CapsuleEncoder, CapsulePoE

PROGRAM = Path(__file__).with_name("jax_program.py")
FAST = ("persistent",)
SLOW = ("encoder", "decoder", "mixture", "autoencoder", "tempered", "neurons")

DROPOUT = """
import numpy as np
from keras_capsule_poe import ConvAutoencoder
x = np.random.default_rng(0).uniform(size=(4, 20, 20, 1)).astype("float32")
# With float16 an optimizer inside another one counts the steps.
for dtype in ("float32", "mixed_float16"):
    model = ConvAutoencoder(filters=2, kernel_size=5, dropout=0.5, dtype=dtype)
    model.compile(keras.optimizers.SGD(0.0), "binary_crossentropy")
    losses = model.fit(x, epochs=3, verbose=0).history["loss"]
    # Nothing moves but what is dropped.
    assert len(set(losses)) == 3, losses
    told = [model.evaluate(x, verbose=0) for _ in range(2)]
    assert told[0] == told[1] and told[0] not in losses
    model.save("autoencoder.keras")
    again = keras.models.load_model("autoencoder.keras")
    # Images are their own targets, whatever asks.
    np.testing.assert_allclose(again.evaluate(x, verbose=0), told[0], rtol=1e-3)
    again.fit(((part,) for part in np.split(x, 2)), shuffle=False, verbose=0)
"""


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("jax_program", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_jax(folder, names):
    pytest.importorskip("jax")
    path = folder / "found.npz"
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, PROGRAM, path, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(path) as arrays:
        return dict(arrays)


def assert_equal(program, arrays, names):
    """Float32, sums in another order; six steps at a rate of 0.1 and less, weights of about one."""
    for name in names:
        own = {k.split("/")[1]: a for k, a in arrays.items() if k.startswith(f"{name}/")}
        if name in program.CERTAIN:
            expected, given = program.fitted(name), own
        else:
            expected = {k[8:]: a for k, a in own.items() if k.startswith("by step ")}
            given = {k: a for k, a in own.items() if not k.startswith("by step ")}
        assert given.keys() == expected.keys() and len(given) > 8
        for key, value in given.items():
            assert np.isfinite(value).all(), (name, key)
            np.testing.assert_allclose(value, expected[key], atol=2e-5, err_msg=f"{name} {key}")


@pytest.mark.long
def test_persistent_chains_are_fitted(program, tmp_path):
    assert_equal(program, on_jax(tmp_path, FAST), FAST)


@pytest.mark.long
def test_the_others_are_fitted(program, tmp_path):
    assert_equal(program, on_jax(tmp_path, SLOW), SLOW)


def test_nothing_is_left_out(program):
    assert set(FAST + SLOW) == {*program.CERTAIN, *program.NOISY}


@pytest.mark.long
def test_what_is_dropped_changes_and_images_are_their_own_targets(run_on):
    run_on("jax", DROPOUT)


def test_other_backends_are_refused_in_one_line(monkeypatch):
    model = CapsuleEncoder(CapsulePoE(5, 3))
    x = np.zeros((2, 6, 4), "float32")
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    model.compile("sgd")
    for call in (model.fit, model.evaluate, lambda x: model.train_step((x, None, None))):
        with pytest.raises(RuntimeError, match="TensorFlow and Jax backends only") as refused:
            call(x)
        assert "\n" not in str(refused.value)
