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
from keras_capsule_poe.cli.main import main

ROOTS = tuple(
    f"{Path(module.__file__).resolve().parent}/" for module in (kcp, sys.modules[main.__module__])
)


class Found(BaseException):
    """Ends a call at its first product."""


def ours(filename):
    return str(Path(filename).resolve()).startswith(ROOTS)


def way_to_the_first_product(monkeypatch, run, module=""):
    """Frames of this package from a call to the first matrix product that `module` makes."""
    found = []

    def watched(real):
        def product(*args, **kwargs):
            stack = traceback.extract_stack()
            if any(frame.filename.endswith(module) for frame in stack):
                found.extend(f for f in stack if ours(f.filename))
                raise Found
            return real(*args, **kwargs)

        return product

    for name in ("matmul", "einsum"):
        monkeypatch.setattr(ops, name, watched(getattr(ops, name)))
    with pytest.raises(Found):
        run()
    return [f"{Path(frame.filename).name}:{frame.name}" for frame in found]


def functions_of(run):
    """Functions of this package that a call runs, each once; not comprehensions."""
    found = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOTS) and "comp>" not in code.co_name:
            found.add((Path(code.co_filename).name, code.co_firstlineno, code.co_name))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("name, most", [("capsules", 10), ("neurons", 8)])
def test_the_way_from_fit(monkeypatch, name, most):
    if name == "capsules":
        model, shape = kcp.CapsuleEncoder(kcp.CapsulePoE(5, 3)), (6, 4)
    else:
        model, shape = kcp.HarmoniumModel(kcp.RestrictedBoltzmannMachine(5)), (8,)
    model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    model.build((None, *shape))
    x = np.random.default_rng(0).uniform(0, 0.3, (8, *shape)).astype("float32")
    way = way_to_the_first_product(monkeypatch, lambda: model.fit(x, verbose=0))
    assert len(way) <= most, way


def test_the_way_from_the_command(monkeypatch, tmp_path):
    command = ["train", "--dataset", "digits", "--limit", "40", "--epochs", "1"]
    command += ["--model-dir", str(tmp_path / "run"), "--stage", "encoder"]
    command += ["--set", "autoencoder.filters=2", "--set", "encoder.capsules=3"]

    def train():
        main(command, standalone_mode=False)

    way = way_to_the_first_product(monkeypatch, train, module="core/divergence.py")
    assert len(way) <= 22, way


def test_functions_of_a_sample_and_of_a_code(small_product):
    model = small_product()
    sampled = functions_of(lambda: model.sample(8, seed=0))
    assert len(sampled) <= 84, sorted(sampled)
    images = np.random.default_rng(0).uniform(size=(4, 20, 20, 1)).astype("float32")
    encoded = functions_of(lambda: model.encode(images))
    assert len(encoded) <= 79, sorted(encoded)
