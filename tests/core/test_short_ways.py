"""How long the way is from a public call to the mathematics: frames and functions of this package.

Rejected: layers of functions that only call the next one. A limit falls when a way gets shorter.
"""

import sys
import traceback
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_capsule_poe as kcp

ROOT = f"{Path(kcp.__file__).parent}/"


def frames_to_the_first_product(monkeypatch, run):
    """Frames of this package from a call to the first matrix product that it traces."""
    found = []

    def watched(real):
        def product(*args, **kwargs):
            found.append([f for f in traceback.extract_stack() if f.filename.startswith(ROOT)])
            return real(*args, **kwargs)

        return product

    for name in ("matmul", "einsum"):
        monkeypatch.setattr(ops, name, watched(getattr(ops, name)))
    run()
    return found[0]


def functions_of(run):
    """Functions of this package that a call runs, each once."""
    found = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            found.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


# Ten frames are the aim for capsules. A graph of any batch size takes slices in a loop, which is
# two frames, and the steps of replicas, models and layers are seven.
@pytest.mark.parametrize("name, most", [("capsules", 14), ("neurons", 10)])
def test_the_way_to_the_first_product(monkeypatch, name, most):
    if name == "capsules":
        model, shape = kcp.CapsuleEncoder(kcp.CapsulePoE(5, 3)), (6, 4)
    else:
        model, shape = kcp.HarmoniumModel(kcp.RestrictedBoltzmannMachine(5)), (8,)
    model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    model.build((None, *shape))
    x = np.random.default_rng(0).uniform(0, 0.3, (8, *shape)).astype("float32")
    frames = frames_to_the_first_product(monkeypatch, lambda: model.fit(x, verbose=0))
    way = [f"{Path(f.filename).name}:{f.name}" for f in frames]
    assert len(way) <= most, way


# The aims are 40 and 50: half of these are methods of maps, routing and numerics of a few lines.
def test_functions_of_a_sample_and_of_a_code(small_product):
    model = small_product()
    sampled = functions_of(lambda: model.sample(8, seed=0))
    assert len(sampled) <= 82, sorted(sampled)
    images = np.random.default_rng(0).uniform(size=(4, 20, 20, 1)).astype("float32")
    encoded = functions_of(lambda: model.encode(images))
    assert len(encoded) <= 77, sorted(encoded)
