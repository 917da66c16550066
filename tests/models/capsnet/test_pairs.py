"""Capsule networks of two overlapping images: trained, judged, shown and served.

Rejected: one hot label of two; both targets decoded from both capsules, or from each other's; a
pair that counts as right with one of its digits; an interrupted epoch that sees other pairs.
"""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from scipy.stats import binomtest

from keras_capsule_poe import CapsNet, registry
from keras_capsule_poe.data import ImageSet, load_images
from keras_capsule_poe.evaluation.classification import pair_metrics
from keras_capsule_poe.models.base.networks import examples
from keras_capsule_poe.plotting import parts

TINY = {"filters": 4, "types": 2, "coefficients": "uniform", "batch_size": 40, "epochs": 2}
TINY |= {"dataset": "digits_multi", "limit": 200, "checkpoint_seconds": 1e-3}
TINY |= {"compute": {"precision": "float32"}}


def model_of(**settings):
    return registry.create("capsnet", "small", **TINY, **settings)


@pytest.fixture(scope="module")
def folder(capspoe, tmp_path_factory):
    """Folder of a network of pairs; with what training said."""
    path = tmp_path_factory.mktemp("models") / "digits_multi"
    settings = [part for name in ("filters", "types") for part in ("--set", f"capsnet.{name}=2")]
    done = capspoe("train", "--model", "capsnet", "--recipe", "small", "--dataset", "digits_multi",
                   "--limit", 100, "--epochs", 1, "--coefficients", "uniform", *settings,
                   "--set", "compute.precision=float32", "--model-dir", path)  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "Images of several are not augmented" in done.output
    assert "val_accuracy" in (path / "capsnet" / "history.json").read_text()
    return path


def test_examples_are_pairs_with_their_digits():
    pairs = load_images("digits_multi", limit=60).train
    ((images, (labels, targets, parts)),) = examples(pairs, 10, batch_size=60, seed=0)
    assert np.all(np.sum(labels, axis=1) == 2) and np.all(np.sum(parts, axis=2) == 1)
    np.testing.assert_array_equal(np.sum(parts, axis=1), labels)
    np.testing.assert_allclose(np.minimum(np.sum(targets, axis=1), 1), images, atol=1e-6)
    # Each target is a digit of the class that its label says: it is known by its ink.
    singles = load_images("digits", limit=60).train
    inks = singles.images.sum(axis=(1, 2, 3))
    assert len(np.unique(inks)) == 60
    for target, part in zip(np.asarray(targets).reshape(120, -1), np.reshape(parts, (120, 10))):
        # Sums of some hundred float32 numbers below one.
        (which,) = np.flatnonzero(np.abs(inks - 255 * target.sum(dtype="float64")) < 0.1)
        assert part.argmax() == singles.labels[which]


def test_both_digits_are_decoded_alone():
    """The loss of a batch against NumPy, with each target's own capsule."""
    model = CapsNet.of_shape(model_of().settings, (36, 36, 1))
    pairs = load_images("digits_multi", limit=20).train
    ((images, y),) = examples(pairs, 10, batch_size=20, seed=0)
    capsules = np.asarray(model(images))
    lengths = np.linalg.norm(capsules, axis=-1)
    labels, targets, parts = (np.asarray(part) for part in y)
    margin = labels * np.maximum(0.9 - lengths, 0) ** 2
    margin += 0.5 * (1 - labels) * np.maximum(lengths - 0.1, 0) ** 2
    error = 0
    for part in range(2):
        shown = np.asarray(model.decoder(capsules * parts[:, part, :, None]))
        error += np.square(shown - targets[:, part]).sum(axis=(1, 2, 3)).mean()
    expected = margin.sum(axis=1).mean() + 0.0005 * error
    found = float(model.compute_loss(images, y, model(images)))
    # Sums of 20 x 1296 float32 squares.
    assert found == pytest.approx(expected, rel=1e-4)


def test_pairs_and_digits_by_hand():
    lengths = np.array([[0.9, 0.5, 0.1], [0.9, 0.5, 0.1], [0.1, 0.5, 0.9], [0.9, 0.1, 0.5]])
    labels = np.array([[1, 0], [0, 2], [0, 1], [0, 2]])
    images = ImageSet(np.zeros((4, 1, 3, 1), np.uint8), labels)
    found = pair_metrics({"probabilities": lengths}, images)
    assert found["pairs"]["pair"]["error"] == 0.5 and found["pairs"]["pair"]["of"] == 4
    assert found["pairs"]["digit"]["error"] == 0.25 and found["pairs"]["digit"]["of"] == 8
    low, high = binomtest(2, 8).proportion_ci(method="wilson")
    assert found["pairs"]["digit"]["low"] == pytest.approx(low)
    assert found["pairs"]["digit"]["high"] == pytest.approx(high)
    assert {name: each["wrong"] for name, each in found["errors"].items()} == {
        "0": 1, "1": 0, "2": 1,
    }  # fmt: skip


@pytest.mark.long
def test_it_is_evaluated(capspoe, folder, tmp_path):
    page, path, twin = tmp_path / "page.html", tmp_path / "figures.json", tmp_path / "twin"
    shutil.copytree(folder, twin)
    both = tmp_path / "compared.json"
    done = capspoe("compare", folder, twin, "--limit", 40, "--json", both)
    assert done.exit_code == 0, done.output
    assert json.loads(both.read_text())["mcnemar"][twin.name]["p"] == 1
    done = capspoe("evaluate", "--model-dir", folder, "--limit", 40, "--json", path)
    assert done.exit_code == 0 and "Pairs" in done.output, done.output
    figures = json.loads(path.read_text())
    pair, digit = (figures["pairs"][name] for name in ("pair", "digit"))
    assert pair["of"] == 40 and digit["of"] == 80
    assert digit["wrong"] >= pair["wrong"] >= digit["wrong"] / 2
    assert pair["low"] <= pair["error"] <= pair["high"]
    assert sum(each["wrong"] for each in figures["errors"].values()) == digit["wrong"]
    options = ("--limit", 40, "--metrics", path, "--out", page)
    done = capspoe("report", "--model-dir", folder, *options)
    assert done.exit_code == 0, done.output
    text = page.read_text()
    shown = ("capsule 1", "target 1", "capsule 2", "target 2", "Mistaken")
    assert all(words in text for words in shown)


@pytest.mark.long
def test_pictures(capspoe, folder, tmp_path):
    picture = tmp_path / "picture.png"
    done = capspoe("reconstruct", "--model-dir", folder, "--out", picture, "--n", 3, "--plain")
    assert done.exit_code == 0, done.output
    labels, named = (line.split()[1:] for line in done.output.splitlines()[-2:])
    assert len(labels) == len(named) == 3 and all("+" in pair for pair in labels + named)
    with Image.open(picture) as image:
        cell = (36 + 2) * 2
        # And a line of words above.
        assert image.size == (3 * cell + 4, 5 * cell + 4 + 18)
    assert (folder / "reconstructions.png").exists()


@pytest.mark.long
def test_two_digits_are_pulled_apart_in_colour(capspoe, folder, tmp_path):
    picture = tmp_path / "picture.png"
    done = capspoe("segment", "--model-dir", folder, "--out", picture, "--n", 3)
    assert done.exit_code == 0, done.output
    assert "original, decoded, targets" in done.output
    with Image.open(picture) as image:
        cell = (36 + 2) * 2
        assert image.size == (3 * cell + 4, 3 * cell + 4) and image.mode == "RGB"
        shown = np.asarray(image)
    # Orange and blue of the last row are the two targets of each image, in the order of its labels.
    targets = load_images("digits_multi", limit=100).test.extras["targets"][:3, :, :, :, 0]
    for number in range(3):
        left, top = 4 + number * cell, 4 + 2 * cell
        pixels = shown[top : top + 72 : 2, left : left + 72 : 2]
        np.testing.assert_array_equal(pixels[..., 0], targets[number, 0])
        np.testing.assert_array_equal(pixels[..., 2], targets[number, 1])
        mixed = 0.6 * targets[number, 0] + 0.4 * targets[number, 1]
        np.testing.assert_allclose(pixels[..., 1], mixed, atol=0.51)


def test_parts_stand_where_their_labels_do():
    class Two:
        """Capsules of two numbers, which are shown as they are."""

        def encode(self, images):
            capsules = images[:, :, :, 0]
            return {"capsules": capsules, "probabilities": capsules[..., 0]}

        def render(self, capsules):
            return {"images": capsules[..., None]}

    image = np.array([[0.2, 1], [0.9, 2], [0.4, 3], [0.1, 4]]).reshape(1, 4, 2, 1)
    for labels, expected in (
        ([1, 2], [1, 2]),
        ([2, 1], [2, 1]),
        ([2, 0], [2, 1]),
        ([3, 0], [1, 2]),
    ):
        classes, shown = parts(Two(), image, 2, np.array([labels]))
        assert classes.tolist() == [expected]
        for part, name in zip(shown[0, ..., 0], expected):
            alone = np.zeros((4, 2))
            alone[name] = image[0, name, :, 0]
            np.testing.assert_allclose(part, alone, rtol=1e-6)


@pytest.mark.long
def test_it_is_served_as_before(folder):
    served = tf.saved_model.load(str(folder / "1"))
    images = np.zeros((2, 36, 36, 1), "float32")
    assert served.classify(images)["classes"].shape == (2,)
    assert served.reconstruct(images)["images"].shape == images.shape


@pytest.mark.long
def test_an_interrupted_run_sees_the_same_pairs(tmp_path, goes_on_alike):
    """Other pairs in one batch move the weights by 1e-3."""
    goes_on_alike(model_of(decoder="none"), tmp_path)
