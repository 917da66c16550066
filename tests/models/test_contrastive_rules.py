"""What all models share that are trained by a rule of their own: what is refused, what stays.

Rejected: frozen weights that move; figures for which there are no targets.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import ConvAutoencoder, HarmoniumModel, RestrictedBoltzmannMachine

V = np.random.default_rng(0).integers(2, size=(8, 6)).astype("float32")


@pytest.fixture
def model():
    return HarmoniumModel(RestrictedBoltzmannMachine(3))


def fitted(model):
    """By how much weights move."""
    model.build(V.shape)
    before = model.get_weights()
    model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    model.fit(V, verbose=0)
    return [np.abs(new - old).max() for new, old in zip(model.get_weights(), before, strict=True)]


def test_frozen_weights_stay(model):
    model.build(V.shape)
    model.machine.kernel.trainable = False
    moved = dict(zip((w.name for w in model.weights), fitted(model), strict=True))
    assert moved["kernel"] == 0 and moved["hidden_bias"] > 0


def test_all_of_them_may_be_frozen(model):
    model.trainable = False
    assert not any(fitted(model))


@pytest.mark.parametrize("what", [{"loss": "mse"}, {"metrics": ["mae"]}])
def test_there_are_no_targets_to_compile_for(model, what):
    model.compile("sgd", **what, jit_compile=False)
    for call in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="neither `loss` nor `metrics`"):
            call(V, verbose=0)


def test_what_is_not_built_says_so_or_is_built_from_arrays(model):
    model.compile("sgd", jit_compile=False)
    with pytest.raises(ValueError, match="HarmoniumModel is not built: call `build"):
        model.fit(tf.data.Dataset.from_tensors(V), shuffle=False, verbose=0)
    assert "loss" in model.evaluate(V, verbose=0, return_dict=True) and model.built


def test_images_are_their_own_targets_in_a_stream():
    model = ConvAutoencoder(filters=2, kernel_size=5)
    model.compile("sgd", "binary_crossentropy", metrics=["mae"], jit_compile=False)
    images = np.random.default_rng(0).uniform(size=(4, 20, 20, 1)).astype("float32")
    one = model.evaluate(images, verbose=0)
    assert np.isfinite(one).all()
    model.fit(tf.data.Dataset.from_tensor_slices((images,)).batch(2), shuffle=False, verbose=0)
    assert model.evaluate(images, verbose=0) != one
