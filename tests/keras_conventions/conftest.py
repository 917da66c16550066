"""Small classifiers, unbuilt and not compiled."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import (
    CapsNet,
    ConvCapsules,
    ConvClassifier,
    ConvEMCapsules,
    DenseDecoder,
    EMCapsules,
    MatrixCapsNet,
    PrimaryMatrixCapsules,
    RoutingLayer,
)

SHAPE, CLASSES = (12, 12, 1), 4


def small_capsnet(classes=CLASSES, decoder=True):
    primary = keras.Sequential([keras.layers.Conv2D(4, 3), ConvCapsules(2, 3, kernel_size=5)])
    # The plain form has the smaller graph.
    routing = RoutingLayer(classes, 4, implementation="reference")
    return CapsNet(primary, routing, SHAPE, DenseDecoder(SHAPE, (6,)) if decoder else None)


def small_matrix_capsnet(classes=CLASSES):
    plain = {"implementation": "reference"}
    layers = [PrimaryMatrixCapsules(2, 2), ConvEMCapsules(2, strides=2, **plain)]
    features = keras.layers.Conv2D(4, 3, 2, activation="relu")
    return MatrixCapsNet(features, [*layers, EMCapsules(classes, **plain)], SHAPE)


def small_classifier(classes=CLASSES):
    layers = [keras.layers.Conv2D(4, 5), keras.layers.Flatten(), keras.layers.Dense(classes)]
    return ConvClassifier(keras.Sequential(layers), SHAPE)


@pytest.fixture(
    # Graphs of matrix capsules take long to trace; the conventions are those of their base class.
    params=[
        small_capsnet,
        pytest.param(small_matrix_capsnet, marks=pytest.mark.long),
        small_classifier,
    ],
    ids=lambda make: make.__name__,
)
def make(request):
    return request.param


@pytest.fixture
def images():
    return np.random.default_rng(0).uniform(size=(16, *SHAPE)).astype("float32")


@pytest.fixture
def labels():
    return np.arange(16) % CLASSES


@pytest.fixture
def capsnet():
    return small_capsnet


@pytest.fixture
def conv_classifier():
    return small_classifier
