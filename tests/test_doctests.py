"""The examples in docstrings run and print what they say."""

import doctest
import importlib

import keras
import numpy as np
import pytest
from keras import ops

MODULES = [
    f"keras_capsule_poe.{name}"
    for name in (
        "functions.checks",
        "functions.divergence",
        "functions.maps",
        "functions.randomness",
        "functions.routing",
        "functions.streamed.blocks",
        "functions.streamed.router",
        "functions.units",
        "layers.capsule_length",
        "layers.capsule_poe",
        "layers.routing_layer",
        "losses",
        "metrics",
        "models.autoencoder",
        "models.capsule_poe.decoder",
        "models.capsule_poe.encoder",
    )
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    names = {**vars(module), "np": np, "ops": ops, "keras": keras}
    found = doctest.testmod(module, globs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted and not found.failed
