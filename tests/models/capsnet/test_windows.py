"""Capsule networks that see a window of an image: trained on random ones, asked with whole images.

Rejected: a window that is not in the middle; standardisation of the whole image instead of the
window; a decoder that is compared with the whole image, or a standardised one; windows of images
shown beside whole ones; windows of images that are too small, or not yet as small as the
published code has them.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_capsule_poe import CapsNet, Standardize, registry
from keras_capsule_poe.data import load_images
from keras_capsule_poe.data.augmentation import center_crop, cifar, norb, standardize
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.models.base.networks import AUGMENTATIONS
from keras_capsule_poe.plotting import part_rows, segmented

SETTINGS = {"filters": 4, "types": 2, "coefficients": "uniform"}
TINY = [part for name, value in SETTINGS.items() for part in ("--set", f"capsnet.{name}={value}")]
TINY += ["--set", "compute.precision=float32"]
TRAIN = ("train", "--model", "capsnet", "--recipe", "small", "--dataset", "digits", "--limit", 60)


def network(shape=(32, 32, 3), **settings):
    usual = {} if settings.get("network") == "cnn" else SETTINGS
    settings = {**usual, "compute": {"precision": "float32"}, **settings}
    return CapsNet.of_shape(registry.settings("capsnet", "small", **settings), shape)


def pixels(n=3, shape=(32, 32, 3)):
    return np.random.default_rng(0).integers(0, 256, (n, *shape), dtype=np.uint8)


def test_the_layer_standardises_as_the_augmentation_does():
    images = pixels()
    images[1] = 7  # a uniform image is zero, and not a division by zero
    found = np.asarray(Standardize()(to_pixels(images)))
    # Means of 3072 float32 numbers; of the uniform image, rounding times 255 sqrt(3072).
    np.testing.assert_allclose(found[[0, 2]], standardize(images)[[0, 2]], atol=1e-4)
    np.testing.assert_allclose(found[1], 0, atol=1e-3)


def test_the_layer_takes_images_whose_size_a_graph_does_not_know():
    shape = tf.TensorSpec((None, None, None, 3))
    layer, images = Standardize(), to_pixels(pixels())
    found = tf.function(layer, input_signature=[shape])(images)
    np.testing.assert_allclose(found, layer(images), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind, change, side", [("cifar", cifar, 32), ("norb", norb, 48)])
def test_training_sees_the_published_windows(kind, change, side):
    """The model standardises what the stream gives it: then it is what the function gives."""
    images = pixels(shape=(side, side, 2))
    given = AUGMENTATIONS[kind](images, np.random.default_rng(1))
    expected = change(images, np.random.default_rng(1))
    model = network(images.shape[1:], augmentation=kind)
    first = model.primary.layers[0]
    seen = first(model.view(given))
    assert given.dtype == np.float32 and isinstance(first, Standardize)
    np.testing.assert_allclose(seen, expected, atol=1e-4)
    assert model.decoder.image_shape == expected.shape[1:] == model.view(images).shape[1:]


def test_clothes_are_mirrored_and_seen_whole():
    """Some of them, not all; and nothing else happens to them."""
    images = pixels(8)
    given = AUGMENTATIONS["flip"](images, np.random.default_rng(1))
    mirrored = [np.array_equal(new, old[:, ::-1]) for new, old in zip(given, images, strict=True)]
    as_they_are = [np.array_equal(new, old) for new, old in zip(given, images, strict=True)]
    assert 0 < sum(mirrored) < 8 and sum(mirrored) + sum(as_they_are) == 8
    assert network(augmentation="flip").view is None


def test_whole_images_are_cropped_in_the_middle():
    model = network(augmentation="cifar")
    images = pixels()
    whole, middle = to_pixels(images), to_pixels(center_crop(images, 24))
    labels = np.eye(10)[[3, 1, 4]].astype("float32")
    capsules = np.asarray(model(whole))
    np.testing.assert_allclose(capsules, model(middle), rtol=1e-5, atol=1e-7)
    aside = np.asarray(model(whole[:, 3:27, 4:28]))
    assert np.abs(aside - capsules).max() > 1e-3 * np.abs(capsules).max()
    lengths = np.linalg.norm(capsules, axis=-1)
    margin = labels * np.maximum(0.9 - lengths, 0) ** 2
    margin += 0.5 * (1 - labels) * np.maximum(lengths - 0.1, 0) ** 2
    decoded = np.asarray(model.decoder(capsules * labels[..., None]))
    error = np.square(decoded - middle).sum(axis=(1, 2, 3)).mean()
    expected = margin.sum(axis=1).mean() + 0.0005 * error
    for given in (whole, middle):
        # Sums of 1,728 float32 squares.
        found = float(model.compute_loss(given, labels, model(given)))
        assert found == pytest.approx(expected, rel=1e-4)


@pytest.fixture(scope="module")
def folder(capspoe, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "windows"
    done = capspoe(*TRAIN, "--image-size", 32, "--augmentation", "cifar", *TINY, "--epochs", 1,
                   "--batch-size", 20, "--model-dir", path)  # fmt: skip
    assert done.exit_code == 0, done.output
    return path


@pytest.mark.long
def test_it_is_trained_saved_and_served(capspoe, folder, tmp_path):
    model = keras.models.load_model(folder / "model.keras", compile=False)
    assert model.image_shape == (32, 32, 1)
    images = to_pixels(load_images("digits", image_size=32).test.images[:4])
    served = tf.saved_model.load(str(folder / "1"))
    for name in ("classify", "reconstruct", "traverse"):
        for key, value in getattr(model, name)(images).items():
            found = getattr(served, name)(images)[key]
            np.testing.assert_allclose(found, value, rtol=1e-3, atol=1e-5)
    assert served.traverse(images)["images"].shape == (4, 8, 11, 24, 24, 1)
    picture, page = tmp_path / "picture.png", tmp_path / "page.html"
    done = capspoe("reconstruct", "--model-dir", folder, "--out", picture, "--n", 5, "--plain")
    assert done.exit_code == 0 and "original, longest capsule" in done.output, done.output
    rows = 2 + ("capsule of the label" in done.output)
    with Image.open(picture) as image:
        # Three pixels for one of the window's, with a frame; and a line of words.
        cell = (24 + 2) * 3
        assert image.size == (5 * cell + 6, rows * cell + 6 + 18)
    done = capspoe("report", "--model-dir", folder, "--limit", 20, "--out", page)
    assert done.exit_code == 0 and "Reconstructions" in page.read_text(), done.output


def test_couplings_are_of_the_window():
    model = network(augmentation="cifar", coefficients="routed")
    images = pixels()
    whole, middle = to_pixels(images), to_pixels(center_crop(images, 24))
    for asked in (model.couplings, model.coupling_changes):
        np.testing.assert_allclose(asked(whole), asked(middle), rtol=1e-4, atol=1e-6)


def test_parts_are_shown_in_the_window():
    model = network(augmentation="cifar")
    images, targets = pixels(), np.stack([pixels(shape=(32, 32, 3)), 255 - pixels()], axis=1)
    labels, middle = np.array([[3, 1], [0, 2], [4, 5]]), to_pixels(center_crop(images, 24))
    _, rows = part_rows(model, images, labels, targets)
    np.testing.assert_array_equal(rows["original"], middle)
    np.testing.assert_array_equal(rows["target_2"], to_pixels(center_crop(255 - images, 24)))
    assert {row.shape for row in rows.values()} == {(3, 24, 24, 3)}
    _, rows = segmented(model, images, targets=targets)
    # Means of three float32 numbers.
    np.testing.assert_allclose(rows["original"][..., 0], middle.mean(axis=-1), atol=1e-6)
    np.testing.assert_allclose(rows["targets"][..., 0], middle.mean(axis=-1), atol=1e-6)
    assert {row.shape for row in rows.values()} == {(3, 24, 24, 3)}


def test_the_control_sees_the_same_window():
    model = network(augmentation="cifar", network="cnn", filters=4)
    images = pixels()
    whole, middle = to_pixels(images), to_pixels(center_crop(images, 24))
    np.testing.assert_allclose(model(whole), model(middle), rtol=1e-5, atol=1e-6)
    assert isinstance(model.network.layers[0], Standardize)


def test_the_network_of_the_paper_for_natural_images():
    more = {"types": 64, "leaky": True, "decoder": "none", "augmentation": "cifar"}
    shapes, parameters = CapsNet.outline(registry.settings("capsnet", **more), (32, 32, 3))
    # Of 24x24 pixels, two convolutions of 9x9 leave 4x4 places, the second one every other.
    assert shapes["primary capsules"] == (4 * 4 * 64, 8) and shapes["window"] == (24, 24, 3)
    convolutions = 81 * 3 * 256 + 256 + 81 * 256 * 512 + 512
    assert parameters == {"primary": convolutions, "routing": 4 * 4 * 64 * 10 * 16 * 8}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ("--image-size", 20, "--augmentation", "cifar"),
            "'cifar' is for images of at least 24x24",
        ),
        (("--image-size", 96, "--augmentation", "norb"), "'norb' is for images of 48x48 pixels"),
    ],
)
def test_images_of_another_size_are_refused(capspoe, tmp_path, arguments, message):
    result = capspoe(*TRAIN, *arguments, *TINY, "--model-dir", tmp_path / "m")
    assert result.exit_code == 2 and message in result.output.splitlines()[-1], result.output
