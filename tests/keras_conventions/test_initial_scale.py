"""Capsule layers that are stacked learn with their default initializers.

Rejected: a fixed standard deviation, with which squashed capsules vanish layer by layer; a scale
that forgets the number of inputs, the coefficients, or that routing selects votes that agree.
"""

import keras
import numpy as np
import pytest
from sklearn.datasets import load_digits

from keras_capsule_poe import (
    CapsuleLength,
    MarginLoss,
    PrimaryCapsules,
    RoutingLayer,
    SelfAttentionRouting,
)

LAYERS = {
    "default": lambda *sizes: RoutingLayer(*sizes),
    "dot": lambda *sizes: RoutingLayer(*sizes, agreement="dot"),
    "leaky": lambda *sizes: RoutingLayer(*sizes, agreement="dot", leaky=True),
    "softmax over inputs": lambda *sizes: RoutingLayer(*sizes, softmax_over="inputs"),
    "mean": lambda *sizes: RoutingLayer(*sizes, softmax_over="inputs", coefficient_sum="mean"),
    "no iterations": lambda *sizes: RoutingLayer(*sizes, routing_iterations=1),
    "shared": lambda *sizes: RoutingLayer(*sizes, shared_weights=True),
    "projection": lambda *sizes: RoutingLayer(*sizes, agreement="projection", logits="replaced"),
    "attention": lambda *sizes: SelfAttentionRouting(*sizes),
    "uniform": lambda *sizes: SelfAttentionRouting(*sizes, routing="uniform"),
}


@pytest.mark.parametrize("sizes", [(50, 20, 8, 8), (1152, 10, 16, 8), (8, 2, 4, 4)])
def test_capsules_neither_vanish_nor_saturate(sizes):
    inputs, capsules, dim, in_dim = sizes
    x = np.random.default_rng(0).normal(size=(16, inputs, in_dim))
    x = (0.5 * x / np.linalg.norm(x, axis=-1, keepdims=True)).astype("float32")
    for kind, layer in LAYERS.items():
        keras.utils.set_random_seed(0)
        lengths = np.linalg.norm(layer(capsules, dim)(x), axis=-1)
        assert 0.15 < lengths.mean() < 0.85, kind


@pytest.mark.long
@pytest.mark.some(4)
@pytest.mark.parametrize("kind", ["default", "dot", "softmax over inputs", "attention"])
def test_stacked_layers_learn(kind):
    keras.utils.set_random_seed(0)
    digits = load_digits()
    images = keras.ops.image.resize((digits.images / 16)[:600, ..., None], (20, 20))
    images, labels = np.asarray(images, "float32"), np.eye(10)[digits.target[:600]]
    make = LAYERS[kind]
    layers = [PrimaryCapsules(8), make(20, 8), make(10, 16), CapsuleLength()]
    model = keras.Sequential([keras.Input((20, 20, 1)), *layers])
    model.compile(
        keras.optimizers.Adam(0.003), MarginLoss(), metrics=["accuracy"], jit_compile=False
    )
    history = model.fit(images, labels, epochs=5, verbose=0).history
    assert history["accuracy"][-1] > 0.8, history


def test_an_explicit_initializer_is_kept():
    for kind in (RoutingLayer, SelfAttentionRouting):
        layer = kind(3, 4, kernel_initializer=keras.initializers.RandomNormal(stddev=0.1))
        again = kind.from_config(layer.get_config())
        assert again.kernel_initializer.stddev == 0.1
        assert kind.from_config(kind(3, 4).get_config()).kernel_initializer is None
