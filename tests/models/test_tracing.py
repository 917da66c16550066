"""Keras' `fit` traces a training step once.

Rejected: an optimizer whose variables the first step makes, for which TensorFlow traces it again.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe import (
    CapsNet,
    CapsuleEncoder,
    CapsulePoE,
    ConvAutoencoder,
    ConvCapsules,
    HarmoniumModel,
    RestrictedBoltzmannMachine,
    RoutingLayer,
)

IMAGES = np.ones((4, 20, 20, 1), "float32")


def capsnet():
    model = CapsNet(ConvCapsules(1, 4, 5, strides=8), RoutingLayer(3, 2), (20, 20, 1))
    model.build()
    return model, IMAGES, np.eye(3)[[0, 1, 2, 0]]


def autoencoder():
    return ConvAutoencoder(filters=2), IMAGES, None


def encoder():
    experts = CapsulePoE(3, 2, implementation="reference", routing_iterations=2)
    return CapsuleEncoder(experts), np.ones((4, 6, 4), "float32"), None


def machine():
    return HarmoniumModel(RestrictedBoltzmannMachine(3)), np.ones((4, 6), "float32"), None


@pytest.mark.some(3)
@pytest.mark.parametrize("begin", [capsnet, autoencoder, encoder, machine])
def test_a_step_is_traced_once(begin, monkeypatch):
    model, x, y = begin()
    calls, step = [], type(model).train_step

    def counted(self, *arguments):
        calls.append(self)
        return step(self, *arguments)

    monkeypatch.setattr(type(model), "train_step", counted)
    loss = "mse" if begin is autoencoder else None
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), loss, jit_compile=False)
    model.fit(x, y, epochs=2, batch_size=2, verbose=0)
    assert len(calls) == 1
    assert len(model.optimizer.variables) > 2
