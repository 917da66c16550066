"""How deep the code is: our frames between `Model.fit` and the matrix product of a step.

Rejected: one more layer of calls on this way.
"""

import traceback
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_capsule_poe
from keras_capsule_poe import CapsuleEncoder, CapsulePoE, HarmoniumModel, RestrictedBoltzmannMachine
from keras_capsule_poe.core.fused.blocks import BlockMaps
from keras_capsule_poe.core.maps import DenseMaps, EinsumMaps

PACKAGE = str(Path(keras_capsule_poe.__file__).parent)


def frames_below_fit(monkeypatch, model, x, maps, method):
    """Our functions between Keras' `fit` and the first call of a method of the maps."""
    found = []
    product = getattr(maps, method)

    def watched(*args, **kwargs):
        stack = traceback.extract_stack()
        fit = max(i for i, f in enumerate(stack) if f.name == "fit" and PACKAGE not in f.filename)
        found.append([f.name for f in stack[fit:] if f.filename.startswith(PACKAGE)])
        return product(*args, **kwargs)

    monkeypatch.setattr(maps, method, watched)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), run_eagerly=True, jit_compile=False)
    model.fit(x, verbose=0)
    return found[0]


@pytest.mark.parametrize("implementation, maps", [("reference", EinsumMaps), ("fused", BlockMaps)])
def test_a_step_of_the_capsule_encoder(monkeypatch, implementation, maps):
    model = CapsuleEncoder(CapsulePoE(5, 3, implementation=implementation))
    x = np.random.default_rng(0).uniform(0, 0.3, size=(8, 6, 4)).astype("float32")
    frames = frames_below_fit(monkeypatch, model, x, maps, "equal_up")
    assert len(frames) <= 10, frames


def test_a_step_of_an_rbm(monkeypatch):
    model = HarmoniumModel(RestrictedBoltzmannMachine(5))
    x = np.random.default_rng(0).integers(0, 2, size=(8, 6)).astype("float32")
    frames = frames_below_fit(monkeypatch, model, x, DenseMaps, "up")
    assert len(frames) <= 10, frames
