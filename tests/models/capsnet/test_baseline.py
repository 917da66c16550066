"""The convolutional baseline: as large as what it stands beside, trained, judged and served.

Rejected: a network of other sizes than the published one; one that is not the nearest in size;
a resumed training whose dropout begins anew.
"""

import math
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import CapsNet, registry

SMALL = {"filters": 4, "types": 2, "decoder": "none"}
CNN = [part for name, value in SMALL.items() for part in ("--set", f"capsnet.{name}={value}")]
CNN += [
    "--set",
    "compute.precision=float32",
    "--recipe",
    "small",
    "--network",
    "cnn",
    "--batch-size",
    "20",
    "--epochs",
    "1",
]


def trained(recipe, **settings):
    found = registry.settings("capsnet", recipe, compute={"precision": "float32"}, **settings)
    model = CapsNet.of_shape(found, (28, 28, 1))
    return model, sum(math.prod(weight.shape) for weight in model.trainable_weights)


def test_the_baseline_of_the_paper():
    """35.4 million: 5x5 convolutions of 256, 256 and 128 filters that keep the size; 328, 192."""
    model, numbers = trained("baseline")
    by_hand = 26 * 256 + 6401 * 256 + 6401 * 128
    by_hand += (28 * 28 * 128 + 1) * 328 + 329 * 192 + 193 * 10
    assert numbers == by_hand == 35_445_522
    kinds = [type(layer).__name__ for layer in model.network.layers]
    assert kinds == ["FastConv2D"] * 3 + ["Flatten", "Dense", "Dense", "BatchDropout", "Dense"]


# Inputs of the first hidden layer: pooled twice to 7x7 of 32; 9x9 of 128; the mean of 128.
@pytest.mark.parametrize(
    "recipe, numbers, inputs",
    [("small", 2_149_872, 1568), ("efficient", 1_573_168, 10_368), ("shared", 279_488, 128)],
)
def test_it_has_as_many_parameters_as_can_be(recipe, numbers, inputs):
    """A unit more or less of the first hidden layer would be as far away, or farther."""
    model, found = trained(recipe, network="cnn")
    first = model.network.layers[-4]
    assert first.kernel.shape[0] == inputs
    assert abs(found - numbers) <= (inputs + 1 + 192) / 2
    assert model.any_size == (recipe == "shared")


@pytest.fixture(scope="module")
def folder(capspoe, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "cnn"
    done = capspoe("train", "--model", "capsnet", "--dataset", "digits", "--limit", 100, *CNN,
                   "--model-dir", path)  # fmt: skip
    assert done.exit_code == 0, done.output
    return path


@pytest.mark.long
def test_it_is_evaluated_shown_and_served(capspoe, folder, refused, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(folder, twin)
    shown = capspoe("compare", folder, twin, "--limit", 40)
    assert shown.exit_code == 0 and "McNemar" in shown.output, shown.output
    shown = capspoe("evaluate", "--model-dir", folder, "--limit", 40)
    # A softmax is no length of a capsule, and sums to one as it is.
    assert "\nProbability " in shown.output and "ormalised" not in shown.output
    shown = capspoe("info", "--model-dir", folder)
    assert shown.exit_code == 0 and "network cnn" in shown.output, shown.output
    images = np.random.default_rng(0).uniform(size=(3, 28, 28, 1)).astype("float32")
    served = tf.saved_model.load(str(folder / "1"))
    found = served.classify(images)
    expected = keras.models.load_model(folder / "model.keras", compile=False).classify(images)
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], rtol=1e-4)
    assert refused(folder / "1") == {"classify": {"images"}}
    refused = capspoe("reconstruct", "--model-dir", folder)
    assert "no images. It is a Convolutional network" in refused.output


@pytest.mark.long
def test_it_has_no_vote_among_capsules(capspoe, folder, tmp_path):
    path = tmp_path / "capsules"
    done = capspoe("train", "--model", "capsnet", "--dataset", "digits", "--limit", 100,
                   *CNN, "--network", "capsules", "--coefficients", "uniform",
                   "--model-dir", path)  # fmt: skip
    assert done.exit_code == 0, done.output
    done = capspoe("compare", path, folder, "--limit", 40)
    assert done.exit_code == 0 and "There is no ensemble" in done.output, done.output
    assert f"{path}: length, {folder}: probability" in done.output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--coefficients", "uniform"), "coefficients has no effect here: capsnet.network is"),
        (("--set", "capsnet.units=0"), "units must be a whole number of at least 1, or none"),
        (("--network", "rnn"), "'rnn'"),
        (("--network", "capsules", "--set", "capsnet.units=9"), "units has no effect here"),
    ],
)
def test_bad_use_is_one_line(capspoe, tmp_path, arguments, message):
    result = capspoe("train", "--model", "capsnet", "--dataset", "digits", "--limit", 100,
                     *("--recipe", "small", "--network", "cnn", *arguments),
                     "--model-dir", tmp_path / "m")  # fmt: skip
    assert result.exit_code == 2 and message in result.output.splitlines()[-1], result.output


@pytest.mark.long
def test_an_interrupted_run_goes_on_with_the_same_dropout(tmp_path, goes_on_alike):
    """Another dropout of one batch moves the weights by 1e-3."""
    settings = {**SMALL, "network": "cnn", "epochs": 2, "batch_size": 40}
    settings |= {"dataset": "digits", "limit": 200, "checkpoint_seconds": 1e-3}
    goes_on_alike(registry.create("capsnet", "small", **settings), tmp_path)
