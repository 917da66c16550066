"""Steps whose gradients are found for a few images at a time: the same steps, in order, refusals.

Rejected: means of microbatches that all count alike; masks of dropout that each one draws for
itself; metrics of the last one; states that move once for each; images found side by side; a
program that was traced for another number.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import (
    CapsNet,
    ConvCapsules,
    ConvClassifier,
    DenseDecoder,
    EMCapsules,
    MatrixCapsNet,
    PrimaryMatrixCapsules,
    RoutingLayer,
)
from keras_capsule_poe.layers.capsules import BatchDropout
from keras_capsule_poe.models.base import sharing

SHAPE, CLASSES = (8, 8, 1), 3


def start(seed):
    return keras.initializers.RandomNormal(stddev=0.5, seed=seed)


def capsules():
    primary = ConvCapsules(2, 4, 5, kernel_initializer=start(0))
    routing = RoutingLayer(CLASSES, 6, implementation="reference", kernel_initializer=start(1))
    decoder = DenseDecoder(SHAPE, units=(8,), kernel_initializer=start(2))
    return CapsNet(primary, routing, SHAPE, decoder, reconstruction_weight=0.1)


def control():
    layers = [
        keras.layers.Conv2D(4, 3, activation="relu", kernel_initializer=start(0)),
        keras.layers.Flatten(),
        BatchDropout(0.5, seed=0),
        keras.layers.Dense(CLASSES, kernel_initializer=start(1)),
    ]
    return ConvClassifier(keras.Sequential(layers), SHAPE)


def matrices():
    layers = [
        PrimaryMatrixCapsules(2, 2, pose_initializer=start(1), activation_initializer=start(2)),
        EMCapsules(CLASSES, kernel_initializer=start(3), activation_initializer=start(4)),
    ]
    features = keras.layers.Conv2D(4, 5, activation="relu", kernel_initializer=start(0))
    return MatrixCapsNet(features, layers, SHAPE)


def images(n=5):
    random = np.random.default_rng(0)
    x = random.uniform(size=(n, *SHAPE)).astype("float32")
    return x, np.eye(CLASSES, dtype="float32")[np.arange(n) % CLASSES]


def trained(make, microbatch, weights):
    model = make()
    model.build()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), jit_compile=False)
    model.microbatch = microbatch
    for _ in range(3):
        found = model.train_on_batch(*images(), weights, return_dict=True)
    # Older Keras gives arrays.
    return model, {name: float(value) for name, value in found.items()}


WEIGHTS = np.array([3, 0, 1, 0.5, 2], "float32")


# Of 5 images: 3 and 2; one by one; all at once. Images count as they weigh, or alike.
@pytest.mark.some(3)
@pytest.mark.parametrize(
    "make, microbatch, weights",
    [(capsules, 3, WEIGHTS), (control, 3, None), (control, 1, None), (control, 8, None),
     pytest.param(matrices, 3, None, marks=pytest.mark.long)],
)  # fmt: skip
def test_a_step_is_that_of_the_whole_batch(make, microbatch, weights):
    whole, told = trained(make, None, weights)
    few, found = trained(make, microbatch, weights)
    for before, after in zip(whole.variables, few.variables, strict=True):
        # Sums in another order, over three steps.
        np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-6, err_msg=before.path)
    assert found == pytest.approx(told, rel=2e-5)


def test_images_are_taken_a_few_at_a_time_and_in_order():
    seen = []

    @keras.saving.register_keras_serializable("tests")
    class Watched(ConvCapsules):
        def call(self, images):
            def note(x):
                seen.append(x[:, 0, 0, 0].tolist())
                return x

            shape = images.shape
            images = tf.numpy_function(note, [images], images.dtype)
            return super().call(tf.ensure_shape(images, shape))

    x, y = images(8)
    model = CapsNet(Watched(2, 4, 5), RoutingLayer(CLASSES, 6, routing_iterations=1), SHAPE)
    model.build()
    model.compile("sgd", jit_compile=False)
    model.microbatch = 3
    model.train_on_batch(x, y)
    assert seen == [x[k : k + 3, 0, 0, 0].tolist() for k in (0, 3, 6)]


def regularized():
    """Not built, and with a loss of its weights."""
    layers = [
        keras.layers.Flatten(),
        keras.layers.Dense(
            CLASSES, kernel_initializer=start(1), kernel_regularizer=keras.regularizers.L2(0.1)
        ),
    ]
    return ConvClassifier(keras.Sequential(layers), SHAPE)


@pytest.mark.some(2)
@pytest.mark.parametrize("dtype, eager", [("float32", False), ("float32", True),
                                          ("mixed_float16", False)])  # fmt: skip
def test_losses_of_weights_scaled_losses_and_models_that_are_not_built(dtype, eager):
    found = []
    for microbatch in (None, 3):
        policy = keras.config.dtype_policy()
        keras.config.set_dtype_policy(dtype)
        try:
            model = regularized()
        finally:
            keras.config.set_dtype_policy(policy)
        model.compile(keras.optimizers.SGD(0.1), jit_compile=False, run_eagerly=eager)
        model.microbatch = microbatch
        loss = [model.train_on_batch(*images(), return_dict=True)["loss"] for _ in range(3)]
        assert loss[2] < loss[0] - 0.01
        found.append((loss, *model.get_weights()))
    for whole, few in zip(*found):
        # Half precision has three digits.
        atol = 2e-6 if dtype == "float32" else 2e-3
        np.testing.assert_allclose(few, whole, rtol=10 * atol, atol=atol)


def test_another_number_is_heeded_after_the_first_step(monkeypatch):
    model = control()
    model.build()
    model.compile("sgd", jit_compile=False)
    model.train_on_batch(*images())
    model.microbatch = 2
    called, whole = [], sharing.mean_of_microbatches
    monkeypatch.setattr(sharing, "mean_of_microbatches", lambda *a: called.append(a) or whole(*a))
    model.train_on_batch(*images())
    assert [microbatch for *_, microbatch in called] == [2]


def test_layers_that_move_or_draw_for_each_call_are_refused():
    def of(layer):
        layers = [keras.layers.Flatten(), layer, keras.layers.Dense(CLASSES)]
        model = ConvClassifier(keras.Sequential(layers), SHAPE)
        model.compile("sgd", jit_compile=False)
        return model

    model = of(keras.layers.Dropout(0.5, name="mask"))
    with pytest.raises(ValueError, match="numbers are drawn for each call.*layer 'mask'"):
        model.microbatch = 2
    model = of(keras.layers.SpectralNormalization(keras.layers.Dense(4)))
    model.microbatch = 2
    with pytest.raises(ValueError, match="a layer changes weights of its own.*microbatch=2"):
        model.train_on_batch(*images())
    # What normalises may be made as the model is built.
    layers = [
        PrimaryMatrixCapsules(2, 2),
        EMCapsules(CLASSES, routing="variational"),
    ]
    model = MatrixCapsNet(keras.layers.Conv2D(4, 5), layers, SHAPE)
    model.compile("sgd", jit_compile=False)
    model.microbatch = 2
    with pytest.raises(ValueError, match="where batches are normalised"):
        model.train_on_batch(*images())


def test_weights_that_the_loss_does_not_reach_are_named():
    model = capsules()
    model.decoder.spare = model.decoder.add_weight(name="spare", shape=(2,))
    model.build()
    model.compile("sgd", jit_compile=False)
    model.microbatch = 3
    with pytest.raises(ValueError, match="The loss must depend on all weights. Received.*spare"):
        model.train_on_batch(*images())


def test_what_it_cannot_be(monkeypatch):
    model = capsules()
    for value in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="`microbatch` must be a positive integer. Received"):
            model.microbatch = value
    layers = [keras.layers.Flatten(), keras.layers.BatchNormalization(name="normal")]
    normalized = ConvClassifier(keras.Sequential([*layers, keras.layers.Dense(CLASSES)]), SHAPE)
    normalized.build()
    with pytest.raises(ValueError, match="where batches are normalised.* layer 'normal'"):
        normalized.microbatch = 2
    normalized.microbatch = None
    with monkeypatch.context() as patch:
        patch.setattr(keras.backend, "backend", lambda: "jax")
        with pytest.raises(ValueError, match="but on TensorFlow. Received.*'jax'"):
            model.microbatch = 2
    assert model.microbatch is None
