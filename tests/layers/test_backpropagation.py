"""Capsule layers inside an ordinary functional model, trained by backpropagation."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import CapsuleLength, MarginLoss, PrimaryCapsules, RoutingLayer

CLASSES = 4


def toy(n, seed):
    """Feature maps (n, 2, 3, 8): one of four patterns, and noise."""
    patterns = np.random.default_rng(7).normal(size=(CLASSES, 2, 3, 8))
    random = np.random.default_rng(seed)
    labels = random.integers(CLASSES, size=n)
    features = patterns[labels] + 0.7 * random.normal(size=(n, 2, 3, 8))
    return features.astype("float32"), labels


def classifier(softmax_over="outputs", implementation="fused"):
    """Two stacked routing layers; the length of a class capsule is its score."""
    primary = PrimaryCapsules(4, name="primary")
    primary.adapt([toy(200, 0)[0]])
    options = {
        "softmax_over": softmax_over,
        "implementation": implementation,
        "routing_iterations": 2,
    }
    inputs = keras.Input((2, 3, 8))
    x = primary(inputs)
    for index, (capsules, dim) in enumerate(((5, 6), (CLASSES, 8))):
        x = RoutingLayer(
            capsules,
            dim,
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.3, seed=index),
            kernel_regularizer=keras.regularizers.L2(1e-5),
            coefficient_sum="mean" if softmax_over == "inputs" else 1.0,
            **options,
        )(x)
    return keras.Model(inputs, CapsuleLength()(x))


@pytest.mark.parametrize(
    "softmax_over, implementation",
    [pytest.param("outputs", "fused", marks=pytest.mark.long), ("inputs", "reference")],
)
def test_stacked_layers_learn_and_are_saved(softmax_over, implementation, tmp_path):
    keras.utils.set_random_seed(0)
    model = classifier(softmax_over, implementation)
    model.compile(
        optimizer=keras.optimizers.Adam(0.02),
        loss=MarginLoss(),
        metrics=["accuracy"],
        jit_compile=False,
    )
    features, labels = toy(256, 1)
    targets = np.eye(CLASSES, dtype="float32")[labels]
    held_out, held_labels = toy(200, 2)

    def accuracy():
        return np.mean(np.argmax(model(held_out), axis=-1) == held_labels)

    untrained = accuracy()
    model.fit(features, targets, batch_size=32, epochs=6, verbose=0)
    # Chance is 0.25; a nearest-pattern rule is right on practically every image.
    assert untrained < 0.6
    assert accuracy() > 0.9

    path = tmp_path / "classifier.keras"
    model.save(path)
    again = keras.saving.load_model(path)
    assert np.array_equal(again(held_out), model(held_out))
    kinds = [type(layer) for layer in again.layers]
    assert kinds.count(RoutingLayer) == 2 and kinds.count(PrimaryCapsules) == 1
    assert len(again.losses) == 2
