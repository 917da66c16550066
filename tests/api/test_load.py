"""`load` reads `.keras` files and run folders only, with finite weights, or says why not.

Rejected: a format that runs code while it is read; weights that are NaN; a reason that is cut.
"""

import json
import shutil
import zipfile

import keras
import numpy as np
import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe import ConvClassifier, ImageBoltzmannMachine, RestrictedBoltzmannMachine
from keras_capsule_poe.errors import BadUse, RunFailed
from keras_capsule_poe.pretrained import _reason


def classifier():
    network = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    model = ConvClassifier(network, (4, 4, 1))
    model.build()
    return model


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.keras"
    classifier().save(path)
    return path


@pytest.mark.parametrize(
    "name", ["x.h5", "x.hdf5", "x.H5", "x", "x.pb", "x.tflite", "x.weights.h5"]
)
def test_other_formats_are_refused_before_they_are_read(tmp_path, name, monkeypatch):
    (tmp_path / name).write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.setattr(keras.models, "load_model", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(BadUse, match="must be a model folder or a .keras file. Received"):
        kcp.load(tmp_path / name)


def test_a_file_of_another_format_by_that_name_is_refused(tmp_path, file, monkeypatch):
    monkeypatch.setattr(keras.models, "load_model", lambda *_, **__: pytest.fail("it was read"))
    (tmp_path / "model.keras").write_bytes(b"\x89HDF\r\n\x1a\n")
    for path in (tmp_path, tmp_path / "model.keras"):
        with pytest.raises(RunFailed, match="no zip archive"):
            kcp.load(path)
    (tmp_path / "model.keras").write_bytes(file.read_bytes()[:-40])
    with pytest.raises(RunFailed, match="damaged"):
        kcp.load(tmp_path)


def test_a_file_of_another_keras_is_refused_with_both_versions(tmp_path, file):
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(tmp_path / "m.keras", "w") as other:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                content = content.replace(b'"units": 3', b'"units": 3, "wings": 2')
            elif name == "metadata.json":
                content = json.dumps({**json.loads(content), "keras_version": "9.1"}).encode()
            other.writestr(name, content)
    words = rf"wings.*Keras 9.1 wrote it, this is {keras.__version__}\.$"
    with pytest.raises(RunFailed, match=words):
        kcp.load(tmp_path / "m.keras")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    model = classifier()
    model.weights[-1].assign(np.array([0.0, value, 0.0]))
    model.save(tmp_path / "model.keras")
    with pytest.raises(RunFailed, match="training diverged.*dense.*bias must have finite"):
        kcp.load(tmp_path)


def test_the_whole_reason_is_told(tmp_path, file, monkeypatch):
    reason = "Layer 'frames' expected 2 variables, " + "but received 0 variables. " * 20 + "END"
    text = f"<class X> could not be deserialized. config={{{'a' * 900}}}. Exception encountered: "
    assert _reason(ValueError(text + reason)) == reason
    assert _reason(KeyError()) == "KeyError"

    def fail(*_, **__):
        raise ValueError(text + reason)

    monkeypatch.setattr(keras.models, "load_model", fail)
    with pytest.raises(RunFailed, match="END") as caught:
        kcp.load(file)
    assert "PyTorch" not in str(caught.value) and "aaa" not in str(caught.value)
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(RunFailed, match="PyTorch can use layers, not whole models"):
        kcp.load(file)


def test_a_whole_file_loads(file, tmp_path):
    shutil.copy(file, tmp_path)
    for path in (file, str(file), tmp_path):
        assert type(kcp.load(path)) is ConvClassifier


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_codes_that_are_not_finite_are_refused(value):
    model = ImageBoltzmannMachine(RestrictedBoltzmannMachine(3), (4, 4, 1))
    model.build()
    codes = np.zeros((2, 1, 3), "float32")
    model.decode(codes)
    codes[1, 0, 2] = value
    with pytest.raises(BadUse, match="`capsules` must be finite"):
        model.decode(codes)
