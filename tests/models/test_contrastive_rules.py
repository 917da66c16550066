"""What all models share that are trained by a rule of their own: what is refused, what stays.

Rejected: frozen weights that move; figures for which there are no targets; a batch that is not full
and counts as one that is; weights of images that are left out; the length of momentums for that of
an update that is another.
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


def test_what_is_not_built_says_so_or_is_built_from_data(model):
    model.compile("sgd", jit_compile=False)
    with pytest.raises(ValueError, match="HarmoniumModel is not built: call `build"):
        model.train_on_batch(V)
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


@pytest.mark.parametrize("at_once", [8, 7, 3])
def test_the_loss_is_of_all_images_however_they_are_parted(model, at_once):
    v = np.concatenate([V[:7], np.ones((1, 6), "float32")])
    model.build(v.shape)
    model.machine.adapt(V[:7])
    model.compile("sgd", jit_compile=False)
    found = model.evaluate(v, batch_size=at_once, verbose=0, return_dict=True)["loss"]
    # The mean-field reconstruction, in float64 from here on; float32 sums in another order.
    made = np.asarray(model.machine.reconstruct(v), "float64")
    assert float(found) == pytest.approx(np.sum((made - v) ** 2) / np.sum(v**2), rel=1e-5)
    # It matters: the last image is the worst, and alone in its batch.
    one_by_one = np.mean(np.sum((made - v) ** 2, axis=1) / np.maximum(np.sum(v**2, axis=1), 1))
    assert abs(one_by_one / found - 1) > 0.05


def test_images_cannot_be_weighed(model):
    model.build(V.shape)
    model.compile("sgd", jit_compile=False)
    weighed = tf.data.Dataset.from_tensors((V, V, np.ones(8)))
    for call, how in ((model.fit, {"shuffle": False}), (model.evaluate, {})):
        for x, more in ((V, {"sample_weight": np.ones(8)}), (weighed, how)):
            with pytest.raises(ValueError, match="HarmoniumModel .* takes no `sample_weight`"):
                call(x, verbose=0, **more)


@pytest.mark.some(5)
@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.SGD(0.1),
        keras.optimizers.SGD(0.1, momentum=0.9),
        keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
        keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=1e-3),
        keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=0.5),
        keras.optimizers.Adam(0.1),
    ],
    ids=["plain", "momentum", "nesterov", "clipped", "decayed", "adam"],
)
def test_the_update_is_as_long_as_weights_move(optimizer):
    # Biases make up for centres that move.
    model = HarmoniumModel(RestrictedBoltzmannMachine(3, centering=False))
    model.build(V.shape)
    model.machine.kernel.assign(np.ones(model.machine.kernel.shape))
    model.compile(optimizer.from_config(optimizer.get_config()), jit_compile=False)
    model.fit(V, verbose=0)
    learned = [model.machine.kernel, model.machine.hidden_bias, model.machine.visible_bias]
    before = [np.asarray(weight, "float64") for weight in learned]
    # `fit` begins its figures anew.
    found = model.fit(V, verbose=0).history["update_size"][0]
    after = [np.asarray(weight, "float64") for weight in learned]
    moved = sum(np.sum((a - b) ** 2) for a, b in zip(after, before))
    length = sum(np.sum(a**2) for a in after)
    # Differences of float32 weights.
    assert found == pytest.approx(np.sqrt(moved / length), rel=1e-3)
