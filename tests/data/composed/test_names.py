"""Composed data sets by name."""

import numpy as np
import pytest
from scipy.io import savemat

from keras_capsule_poe.data import ComposedSet, DataError, load_images
from keras_capsule_poe.data.composed import Affine, Overlapping, Translated, find_composed


def ink_of(images):
    """What each image shows, wherever it lies: the box around its ink, as bytes."""
    boxes = []
    for image in images[..., 0]:
        rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
        boxes.append(image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].tobytes())
    return set(boxes)


@pytest.mark.parametrize(
    ("name", "base", "kind", "shift", "copies"),
    [
        ("multimnist", "mnist", "multi", None, 1),
        ("multimnist/shift=6", "mnist", "multi", 6, 1),
        ("affnist", "mnist", "affine", None, 1),
        ("affnist/copies=32", "mnist", "affine", None, 32),
        ("mnist_translated/shift=0,copies=2", "mnist", "translated", 0, 2),
        ("fashion_mnist_multi", "fashion_mnist", "multi", None, 1),
        ("digits_affine", "digits", "affine", None, 1),
    ],
)
def test_names(name, base, kind, shift, copies):
    found = find_composed(name)
    assert (found.base, found.kind, found.shift, found.copies) == (base, kind, shift, copies)


@pytest.mark.parametrize("name", ["mnist", "mnist_corrupted/fog", "moving_mnist", "./multimnist"])
def test_other_names(name):
    assert find_composed(name) is None


@pytest.mark.parametrize(
    "settings", ["shift", "shift=", "shift=-1", "shift=1,shift=2", "copies=0", "pad=3", ""]
)
def test_settings_that_there_are_not(settings):
    with pytest.raises(DataError, match=f"shift and copies .* Received: 'multimnist/{settings}'"):
        load_images(f"multimnist/{settings}")


def test_multi_shares_no_digit_among_its_splits():
    data = load_images("digits_multi", limit=300).hold_out(50)
    assert data.image_shape == (36, 36, 1)
    assert isinstance(data.train, ComposedSet) and data.train.composition == Overlapping()
    parts = {"held_out": data.held_out.extras["targets"], "test": data.test.extras["targets"]}
    every = [data.train.epoch(0, epoch)(np.arange(250))["targets"] for epoch in range(3)]
    parts["train"] = np.concatenate(every)
    shown = {name: ink_of(targets.reshape(-1, 36, 36, 1)) for name, targets in parts.items()}
    # Each image of a part is the first one of a pair of it.
    assert {name: len(ink) for name, ink in shown.items()} == {
        "held_out": 50,
        "test": 297,
        "train": 250,
    }
    assert not shown["train"] & shown["held_out"]
    assert not shown["train"] & shown["test"]
    assert not shown["held_out"] & shown["test"]


def test_test_images_are_the_same_whatever_the_seed_and_the_limit():
    first = load_images("digits_multi", seed=0).test
    other = load_images("digits_multi", seed=9, limit=40).test
    assert first.fingerprint == other.fingerprint
    assert first.labels.shape == (297, 2) and first.class_names == tuple("0123456789")


def test_translated_and_affine():
    base = load_images("digits")
    moved, turned = load_images("digits_translated"), load_images("digits_affine")
    assert moved.train.composition == turned.train.composition == Translated()
    assert moved.train.base.fingerprint == base.train.fingerprint
    assert (moved.test.images == ComposedSet(base.test, Translated()).images).all()
    assert (turned.test.images == ComposedSet(base.test, Affine()).images).all()
    assert turned.test.extras["affine"].shape == (297, 6)
    assert turned.image_shape == moved.image_shape == (40, 40, 1)
    assert turned.summary() == "1500 training and 297 test images of 40x40x1"


def test_settings_of_a_name():
    data = load_images("digits_affine/shift=3,copies=2", limit=10)
    assert data.train.composition == Translated(shift=3)
    assert len(data.test) == 2 * 297
    assert not np.array_equal(data.test.images[:297], data.test.images[297:])
    assert load_images("digits_multi/shift=6", limit=99).train.composition == Overlapping(shift=6)


@pytest.mark.parametrize(
    "option", [{"column": "image"}, {"image_size": 20}, {"skip_broken": True}], ids=str
)
def test_options_without_a_meaning_are_refused(option):
    (name,) = option
    with pytest.raises(DataError, match=f"`{name}` has no meaning for a data set that is composed"):
        load_images("digits_multi", **option)


def test_a_base_that_is_not_known_is_no_composed_set():
    with pytest.raises(DataError, match="Received: 'qqqq_multi', which is none of them"):
        load_images("qqqq_multi")
    with pytest.raises(DataError, match="did you mean multimnist"):
        load_images("multi_mnist")


@pytest.fixture
def affnist(tmp_path):
    """A folder with affNIST's files as `scipy.io.savemat` writes them, and what they hold."""
    random = np.random.default_rng(0)

    def write(name, n):
        images = random.integers(0, 256, (n, 40, 40), dtype=np.uint8)
        labels = random.integers(0, 10, n, dtype=np.uint8)
        numbers = random.normal(size=(6, n))
        fields = {
            "image": images.reshape(n, -1).T,
            "label_int": labels[np.newaxis],
            "human_readable_transform": numbers,
        }
        savemat(tmp_path / name, {"affNISTdata": fields})
        return images, labels, numbers.T

    return tmp_path, write


def use_digits_as_mnist(monkeypatch):
    from keras_capsule_poe.data import loading

    digits = load_images("digits", limit=20)
    monkeypatch.setattr(loading, "load_tfds", lambda name, options: digits)


def test_the_real_affnist(affnist, monkeypatch):
    use_digits_as_mnist(monkeypatch)
    folder, write = affnist
    parts = [write(f"{name}.mat", 3) for name in (2, 10, 1)]
    parts = [parts[i] for i in (2, 0, 1)]
    for single in (False, True):
        if single:
            parts = [write("test.mat", 5)]
        data = load_images("affnist", manual_dir=folder)
        images, labels, numbers = map(np.concatenate, zip(*parts))
        assert np.array_equal(data.test.images[..., 0], images)
        assert np.array_equal(data.test.labels, labels)
        np.testing.assert_array_equal(data.test.extras["affine"], numbers.astype(np.float32))
        assert data.test.name == "affNIST" and data.train.composition == Translated()
    assert load_images("affnist").test.name == "affNIST-like"


def test_what_is_no_affnist(affnist, monkeypatch):
    use_digits_as_mnist(monkeypatch)
    folder, write = affnist
    with pytest.raises(DataError, match="holds no affNIST: neither test.mat nor 1.mat") as caught:
        load_images("affnist", manual_dir=folder)
    assert caught.value.hint == "leave_out:manual_dir"
    savemat(folder / "test.mat", {"other": np.zeros(3)})
    with pytest.raises(DataError, match=r"test.mat must be a file of affNIST: a struct"):
        load_images("affnist", manual_dir=folder)
    (folder / "test.mat").write_bytes(b"nothing")
    with pytest.raises(DataError, match="test.mat must be a file of affNIST"):
        load_images("affnist", manual_dir=folder)
    fields = {"image": np.zeros((784, 2), np.uint8), "label_int": np.zeros((1, 2), np.uint8)}
    fields["human_readable_transform"] = np.zeros((6, 2))
    savemat(folder / "test.mat", {"affNISTdata": fields})
    with pytest.raises(DataError, match=r"Received: images \(784, 2\) uint8"):
        load_images("affnist", manual_dir=folder)
