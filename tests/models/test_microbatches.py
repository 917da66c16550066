"""Steps whose gradients are found for a few images at a time: the same steps, in order, refusals.

Rejected: means of microbatches that all count alike; masks of dropout that each one draws for
itself; metrics of the last one; states that move once for each; images found side by side.
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
from keras_capsule_poe.layers.dropout import BatchDropout

SHAPE, CLASSES = (8, 8, 1), 3


def start(seed):
    return keras.initializers.RandomNormal(stddev=0.5, seed=seed)


def capsules():
    primary = ConvCapsules(2, 4, 5, kernel_initializer=start(0))
    routing = RoutingLayer(CLASSES, 6, implementation="plain", kernel_initializer=start(1))
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
    return model, found


WEIGHTS = np.array([3, 0, 1, 0.5, 2], "float32")


# Of 5 images: 3 and 2; one by one; all at once. Images count as they weigh, or alike.
@pytest.mark.parametrize(
    "make, microbatch, weights",
    [(capsules, 3, WEIGHTS), (control, 3, None), (control, 1, None), (control, 8, None),
     (matrices, 3, None)],
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
    model = CapsNet(Watched(2, 4, 5), RoutingLayer(CLASSES, 6, iterations=0), SHAPE)
    model.build()
    model.compile("sgd", jit_compile=False)
    model.microbatch = 3
    model.train_on_batch(x, y)
    assert seen == [x[k : k + 3, 0, 0, 0].tolist() for k in (0, 3, 6)]


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
        with pytest.raises(ValueError, match="for the TensorFlow backend. Received.*'jax'"):
            model.microbatch = 2
    assert model.microbatch is None
