"""Files of former versions: models give the same results, runs are shown and resumed.

`tests/fixtures/COMMIT-MODEL.tar.xz` was written by `tools/make_fixtures.py` in a checkout of that
commit, which says what lies in it. On the processor that wrote them, all results are equal bit for
bit. Other processors and versions of TensorFlow add up in another order.
Rejected: a setting, a file name, a registered class or the name of a result that old files have
and the code no longer knows; weights that are read in another order; a resumed run that takes other
images, other random numbers or another learning rate than one that was never killed.
"""

import copy
import inspect
import json
import shutil
import tarfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_capsule_poe as kcp
from keras_capsule_poe.training.checkpoints import Checkpoints

FIXTURES = Path(__file__).parents[1] / "fixtures"
ARCHIVES = sorted(path.name.removesuffix(".tar.xz") for path in FIXTURES.glob("*-*.tar.xz"))
# What the endpoints take besides images and codes, as in `tools/make_fixtures.py`.
ARGUMENTS = {"capsule": 1, "n": 5, "steps": 2, "seed": 3}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
# How many weights of a file a resumed run still has in common with its version, if not all: later
# versions fit the whitening of codes, on which the decoder is trained, in another way.
COMMON = {"2a5e713-capsules": {"autoencoder/model.keras": 8, "encoder/model.keras": 3}}


@pytest.fixture(scope="module", params=ARCHIVES)
def unpacked(request, tmp_path_factory):
    """Folder of the unpacked files of a version and a model."""
    folder = tmp_path_factory.mktemp(request.param)
    with tarfile.open(FIXTURES / f"{request.param}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def check_keras():
    """Skip if this Keras cannot read networks whose initializers a later one wrote."""
    if "input_axes" not in inspect.signature(keras.initializers.GlorotUniform).parameters:
        pytest.skip(f"Keras {keras.__version__} cannot read networks of the Keras of the files")


@pytest.fixture
def old(unpacked):
    """Folder of `unpacked` whose models this version of Keras can read."""
    if "capsnet" in unpacked.name or "matrix" in unpacked.name:
        check_keras()
    return unpacked


def arrays(path):
    with np.load(path) as stored:
        return dict(stored)


def check_endpoints(model, endpoints, stored):
    """The endpoints give the stored results, some of which a SavedModel does not have."""
    given = {key: stored.pop(key) for key in ("images", "capsules") if key in stored}
    values = {**ARGUMENTS, **given}
    assert {key.partition(".")[0] for key in stored} == set(endpoints)
    for name, arguments in endpoints.items():
        found = getattr(model, name)(*(values[argument] for argument in arguments))
        wanted = {
            key.partition(".")[2]: stored[key] for key in stored if key.startswith(f"{name}.")
        }
        is_saved_model = isinstance(found, dict)
        for key in found.keys() & wanted.keys() if is_saved_model else wanted:
            np.testing.assert_allclose(found[key], wanted[key], **CLOSE, err_msg=f"{name}.{key}")


def test_every_model_of_every_version_is_here():
    assert len(ARCHIVES) == 10


def test_a_keras_file_gives_the_same_results(old):
    model = kcp.load(old / "finished")
    check_endpoints(model, model.ENDPOINTS, arrays(old / "results.npz"))


def test_a_model_has_the_settings_of_its_run(old, tmp_path):
    """Also a file alone, as far as its parts tell; a network of layers is for Keras to train."""
    config = json.loads((old / "finished" / "run.json").read_text())["config"]
    model = kcp.load(old / "finished")
    assert model.settings.seed == config["seed"] and model.settings.preset
    assert copy.deepcopy(model).settings.to_dict() == model.settings.to_dict()
    clone = keras.models.clone_model(model)
    assert model.is_fitted and not clone.is_fitted
    shutil.copy(old / "finished" / "model.keras", tmp_path / "alone.keras")
    alone = kcp.load(tmp_path / "alone.keras")
    if alone.settings is None:
        assert alone.LOSS and not alone.compiled
        return
    for name, part in alone.settings.parts.items():
        for key in ("filters", "capsules", "dim", "hidden", "routing", "visible"):
            if hasattr(part, key) and (name != "top" or alone.top is not None):
                assert getattr(part, key) == getattr(getattr(model.settings, name), key), key


@pytest.mark.some(3)
def test_a_saved_model_gives_the_same_results(unpacked):
    card = json.loads((unpacked / "finished" / "1" / "model_card.json").read_text())
    model = tf.saved_model.load(str(unpacked / "finished" / "1"))
    check_endpoints(model, card["endpoints"], arrays(unpacked / "results.npz"))


@pytest.mark.parametrize("commit", sorted({name.partition("-")[0] for name in ARCHIVES}))
def test_decoders_give_the_same_images(commit, tmp_path):
    check_keras()
    with tarfile.open(FIXTURES / f"{commit}-capsnet.tar.xz") as archive:
        for name in ("layers.keras", "layers.npz"):
            archive.extract(name, tmp_path, filter="data")
    stored = arrays(tmp_path / "layers.npz")
    network = keras.models.load_model(tmp_path / "layers.keras")
    for name, value in zip(("lengths", "dense", "conv"), network.predict(stored["codes"])):
        np.testing.assert_allclose(value, stored[name], **CLOSE, err_msg=name)


def test_a_run_is_shown_and_used(old, capspoe, tmp_path):
    folder = old / "finished"
    config = json.loads((folder / "run.json").read_text())["config"]
    result = capspoe("info", "--model-dir", folder)
    assert result.exit_code == 0 and config["model"] in result.output, result.output
    options = "--model-dir", folder, "--out", tmp_path / "grid.png"
    if config["model"] in ("capsnet", "matrix-capsules"):
        result = capspoe("reconstruct", *options)
        # They were trained without a decoder, to be small.
        assert result.exit_code == 1 and "reconstructs no images" in result.output
    else:
        result = capspoe("sample", *options)
        assert result.exit_code == 0 and (tmp_path / "grid.png").exists(), result.output


def weights(folder):
    """Weights of each model of a run, by the path of its file."""
    paths = sorted([*folder.glob("model.keras"), *folder.glob("*/model.keras")])
    models = {path: keras.models.load_model(path, compile=False) for path in paths}
    return {str(path.relative_to(folder)): model.get_weights() for path, model in models.items()}


# The options of some runs have names of settings that have been renamed since.
@pytest.mark.some(9)
@pytest.mark.filterwarnings("ignore:.* is deprecated:FutureWarning")
def test_a_killed_run_ends_as_one_that_was_not(old, capspoe, monkeypatch):
    restored, restore = [], Checkpoints.restore

    def noted(checkpoints, note):
        restored.append(restore(checkpoints, note))
        return restored[-1]

    monkeypatch.setattr(Checkpoints, "restore", noted)
    options = json.loads((old / "options.json").read_text())
    result = capspoe(*(str(old / "killed") if word == "FOLDER" else word for word in options))
    assert result.exit_code == 0, result.output
    assert 9 in [state["step"] for state in restored if state], result.output
    found, wanted = weights(old / "killed"), weights(old / "finished")
    assert found.keys() == wanted.keys()
    common = COMMON.get(old.name.removesuffix("0"), {name: len(wanted[name]) for name in wanted})
    for name, number in common.items():
        assert len(found[name]) == len(wanted[name])
        for one, other in zip(found[name][:number], wanted[name]):
            # Adam makes steps of rounding errors, so single weights may differ on other processors.
            error = np.linalg.norm(np.subtract(one, other, dtype="float64"))
            assert error <= 1e-3 * np.linalg.norm(other) + 1e-6, (name, other.shape, error)
