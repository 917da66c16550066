"""Networks whose weights all places share: images of other sizes, pairs of digits, SavedModel.

Rejected: a network that is bound to the size it was built with; pairs that are not of different
classes, or of which one named class is enough.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import CapsNet, ConvCapsules, RoutingLayer
from keras_capsule_poe.data import ComposedSet, load_images
from keras_capsule_poe.data.composed import SideBySide
from keras_capsule_poe.data.mapping import to_pixels

SETTINGS = ("--dataset", "digits", "--limit", "400", "--epochs", "1", "--batch-size", "40")


@pytest.fixture(scope="module")
def folder(capspoe, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "shared"
    done = capspoe("train", "--model", "capsnet", "--recipe", "shared", *SETTINGS,
                   "--set", "compute.precision=float32", "--model-dir", path)  # fmt: skip
    assert done.exit_code == 0, done.output
    return path


@pytest.mark.long
def test_pairs_are_judged(folder, done, tmp_path):
    path = tmp_path / "figures.json"
    shown = done("evaluate", "--pairs", "--limit", 60, "--json", path)
    assert "side by side" in shown
    figures = json.loads(path.read_text())
    assert figures["side_by_side"] == {"images_a_pair": 2}
    pair, digit = (figures["pairs"][name] for name in ("pair", "digit"))
    assert (pair["of"], digit["of"]) == (60, 120)
    assert pair["wrong"] <= digit["wrong"] <= 2 * pair["wrong"]
    # By hand, of the model's own answers.
    test, model = (
        load_images("digits").test.head(60),
        keras.models.load_model(folder / "model.keras", compile=False),
    )
    both = ComposedSet(test, SideBySide()).fixed()
    assert (both.labels[:, 0] != both.labels[:, 1]).all()
    lengths = np.asarray(model.classify(to_pixels(both.images))["probabilities"])
    two = np.sort(np.argsort(-lengths, axis=1)[:, :2], axis=1)
    assert pair["wrong"] == np.sum((two != np.sort(both.labels, axis=1)).any(axis=1))
    done("evaluate", "--limit", 60, "--json", path)
    single = json.loads(path.read_text())
    assert single["accuracy"]["images"] == 60 and "pairs" not in single


@pytest.mark.long
def test_the_savedmodel_takes_pairs(folder, done):
    test = to_pixels(load_images("digits").test.images[:6])
    pairs = np.concatenate([test[:3], test[3:]], axis=2)
    served = tf.saved_model.load(str(folder / "1"))
    model = keras.models.load_model(folder / "model.keras", compile=False)
    assert served.classify(pairs[:0])["probabilities"].shape == (0, 10)
    for images in (test, pairs, test[:, :, :20]):
        found, expected = served.classify(images), model.classify(images)
        # The same float32 operations, in a graph.
        np.testing.assert_allclose(
            found["probabilities"], expected["probabilities"], rtol=1e-4, atol=1e-6
        )
    card = json.loads((folder / "1" / "model_card.json").read_text())
    assert card["any_size"] is True and card["image_shape"] == [28, 28, 1]


@pytest.mark.long
def test_of_one_size_only_is_said(folder, capspoe, monkeypatch):
    model = CapsNet.from_recipe("small", (28, 28, 1), 10)
    monkeypatch.setattr("keras_capsule_poe.cli.options.load_model", lambda path: model)
    done = capspoe("evaluate", "--model-dir", folder, "--pairs")
    assert done.exit_code == 2
    assert "takes images of 28x28x1 only. One of the recipe shared" in done.output.splitlines()[-1]


def test_primary_capsules_of_maps_of_any_size():
    primary = keras.Sequential([keras.layers.Conv2D(4, 3), ConvCapsules(2, 4, 3)])
    model = CapsNet(primary, RoutingLayer(3, 4, shared_weights=True), (16, 16, 1))
    model.build()
    assert model.any_size and primary.compute_output_shape((None, None, None, 1)) == (None, None, 4)
    images = np.random.default_rng(0).uniform(size=(2, 16, 20, 1)).astype("float32")
    for shown in (images, images[:, :9, :9]):
        assert model.classify(shown)["classes"].shape == (2,)
    assert ConvCapsules(4, 8)(keras.Input((None, None, 1))).shape == (None, None, 8)
    with pytest.raises(ValueError, match="with its features known.*Received: input_shape"):
        ConvCapsules(4, 8).build((None, 9, 9, None))
