"""Lengths and masks of capsules, and the supervised model they end, saved and loaded."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_capsule_poe import CapsuleLength, CapsuleMask, MarginLoss, PrimaryCapsules, RoutingLayer

CAPSULES = np.array([[[0.6, 0.8], [0.0, 0.0]], [[0.3, 0.0], [0.0, -0.4]]], "float32")


def test_length():
    np.testing.assert_allclose(CapsuleLength()(CAPSULES), [[1, 0], [0.3, 0.4]], rtol=1e-6)
    assert CapsuleLength().compute_output_shape((None, 10, 16)) == (None, 10)
    assert CapsuleLength(dtype="mixed_bfloat16")(CAPSULES).dtype == "bfloat16"


def test_mask_by_label_or_length():
    longest = np.asarray(CapsuleMask()(CAPSULES))
    assert np.array_equal(longest != 0, [[[1, 1], [0, 0]], [[0, 0], [0, 1]]])
    labels = np.array([[0, 1], [1, 1]])
    assert np.array_equal(CapsuleMask()(CAPSULES, labels), CAPSULES * labels[..., None])
    for wrong in (np.array([0, 1]), np.ones((2, 3))):
        with pytest.raises(ValueError, match="`labels` must have shape.*Received: shape"):
            CapsuleMask()(CAPSULES, wrong)


def test_mask_in_a_functional_model():
    capsules, labels = keras.Input((2, 2)), keras.Input((2,))
    model = keras.Model([capsules, labels], CapsuleMask()(capsules, labels))
    chosen = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert np.array_equal(model([CAPSULES, chosen]), CAPSULES * chosen[..., None])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a supervised model is saved, and the lengths that it gives."""
    path = tmp_path_factory.mktemp("supervised")
    inputs = keras.Input((20, 20, 1))
    x = keras.layers.Conv2D(4, 9, activation="relu")(inputs)
    x = keras.layers.Conv2D(8, 9, strides=2)(x)
    x = PrimaryCapsules(8, center=False)(x)
    x = RoutingLayer(10, 16)(x)
    model = keras.Model(inputs, CapsuleLength()(x))
    model.compile("adam", MarginLoss(), jit_compile=False)
    images = np.random.default_rng(0).uniform(size=(3, 20, 20, 1)).astype("float32")
    model.save(path / "model.keras")
    np.savez(path / "data.npz", images=images, lengths=model(images))
    return path


@pytest.mark.long
@pytest.mark.parametrize("first", ["keras", "keras_capsule_poe"])
def test_a_supervised_model_loads_in_a_clean_process(first, folder):
    second = {"keras": "keras_capsule_poe", "keras_capsule_poe": "keras"}[first]
    # TensorFlow would import these three where they are installed, and not use them.
    program = f"""
import sys; sys.modules.update(dict.fromkeys(("jax", "matplotlib", "sklearn")))
import {first}
import {second}
import numpy as np
data = np.load("data.npz")
model = keras.models.load_model("model.keras", safe_mode=True)
assert type(model.loss).__name__ == "MarginLoss"
np.testing.assert_allclose(model(data["images"]), data["lengths"], rtol=1e-4, atol=1e-6)
print("loaded")
"""
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=200
    )
    assert shown.stdout.strip() == "loaded", shown.stderr
