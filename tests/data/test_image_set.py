"""`ImageSet` and `ImageData`."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from keras_capsule_poe.data import DataError, ImageData, ImageSet
from keras_capsule_poe.training.images import described


def image_set(n=3, shape=(20, 24, 1), **keywords):
    images = np.random.default_rng(0).integers(0, 256, (n, *shape), dtype=np.uint8)
    return ImageSet(images, **keywords)


def test_sizes():
    images = image_set()
    assert len(images) == 3
    assert images.image_shape == (20, 24, 1)


def test_it_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        image_set().name = "other"


def test_head_takes_labels_along_and_copies_nothing():
    images = image_set(labels=np.arange(3), class_names=("a", "b", "c"), name="some")
    head = images.head(2)
    assert (len(head), head.labels.tolist()) == (2, [0, 1])
    assert (head.class_names, head.name) == (images.class_names, "some")
    assert np.shares_memory(head.images, images.images)
    assert len(images.head(9)) == 3


def test_fingerprint_tells_pixels_and_shapes_apart():
    images = image_set()
    assert images.fingerprint == image_set(name="other").fingerprint
    assert len(images.fingerprint) == 16
    int(images.fingerprint, 16)
    changed = images.images.copy()
    changed[1, 2, 3, 0] ^= 1
    turned = images.images.reshape(3, 24, 20, 1)
    prints = {images.fingerprint, *(ImageSet(a).fingerprint for a in (changed, turned))}
    assert len(prints) == 3


def test_other_arrays_are_refused():
    for images in [
        np.zeros((2, 20, 20, 1)),
        np.zeros((2, 20, 20), np.uint8),
        np.zeros((2, 20, 20, 4), np.uint8),
    ]:
        with pytest.raises(DataError, match="`images` must be a uint8 array.* Received: shape"):
            ImageSet(images)


def test_extras_and_several_labels_travel_along():
    whole = image_set(labels=np.arange(6).reshape(3, 2), extras={"targets": np.arange(3)})
    for part, rows in ((whole.head(2), [0, 1]), (whole.tail(2), [2]), (whole.take([2, 0]), [2, 0])):
        assert np.array_equal(part.images, whole.images[rows])
        assert part.labels.tolist() == whole.labels[rows].tolist()
        assert part.extras["targets"].tolist() == rows
    assert [len(part) for part in whole.split(1)] == [1, 2]
    assert whole.nbytes == 3 * 20 * 24
    rows = whole.epoch(seed=0, epoch=7)(np.array([2, 1]))
    assert list(rows) == ["images", "labels", "targets"]
    assert rows["labels"].tolist() == [[4, 5], [2, 3]]
    assert list(image_set().epoch(0, 0)(np.array([0]))) == ["images"]


def test_other_extras_are_refused():
    for extras in [{"targets": np.zeros(2)}, {"labels": np.zeros(3)}]:
        with pytest.raises(DataError, match="`extras` must be arrays of 3 rows.* Received: '"):
            image_set(extras=extras)


def test_other_labels_are_refused():
    for labels in [np.zeros(2, np.int64), np.zeros(3), np.int64(1), np.zeros((3, 1, 1), np.int64)]:
        with pytest.raises(DataError, match="`labels` must be an int64 array"):
            image_set(labels=labels)


def test_a_pair_must_agree_in_shape():
    data = ImageData(image_set(name="some"), image_set(n=1))
    assert (data.name, data.image_shape, data.skipped) == ("some", (20, 24, 1), ())
    with pytest.raises(DataError, match=r"Received: \(20, 24, 1\) and \(20, 20, 1\)") as caught:
        ImageData(image_set(), image_set(shape=(20, 20, 1)))
    assert caught.value.hint == "image_size"


def test_a_summary_says_what_was_left_out():
    for skipped, end in [
        ((), "1"),
        (("a",), "1, 1 unreadable file left out"),
        ("ab", "1, 2 unreadable files left out"),
    ]:
        data = ImageData(image_set(), image_set(n=1), tuple(skipped))
        assert data.summary() == f"3 training and 1 test images of 20x24x{end}"


def test_the_last_training_images_are_held_out():
    for n, kept in [(None, 2), (1, 1), (39, 39)]:
        whole = image_set(n=40, labels=np.arange(40))
        data = ImageData(whole, image_set(n=1), ("a",)).hold_out(n)
        assert data.held_out.labels.tolist() == list(range(40 - kept, 40))
        assert np.array_equal(data.held_out.images, whole.images[-kept:])
        assert np.array_equal(data.train.images, whole.images[:-kept])
        assert (len(data.test), data.skipped) == (1, ("a",))
        assert f"{40 - kept} training, {kept} held-out and 1 test" in data.summary()
        parts = ["train", "held_out", "test"]
        assert list(data.fingerprints) == [*parts, *(f"{part}_labels" for part in parts)]
        assert data.fingerprints["held_out"] == data.held_out.fingerprint


def test_no_more_than_a_thousand_are_held_out_unasked():
    many = ImageSet(np.zeros((25_000, 1, 1, 1), np.uint8))
    assert len(ImageData(many, many.head(1)).hold_out().held_out) == 1000


def test_one_image_must_be_left_to_train_on():
    for n in [0, 3, 4]:
        with pytest.raises(
            DataError, match=f"`held_out` must.*held_out={n} of 3 training"
        ) as caught:
            ImageData(image_set(), image_set(n=1)).hold_out(n)
        # More images, or fewer held out, are no help where none is.
        assert caught.value.hint == ("held_out" if n else None)


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, keras_capsule_poe.data; "
        "heavy = {'tensorflow', 'tensorflow_datasets', 'PIL', 'sklearn'} & set(sys.modules); "
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("class_names", [None, ("a", "b")])
def test_numbers_that_are_no_classes_are_refused(class_names):
    """Rejects a model of 2**40 classes, which lacks memory."""
    labels = 2**40 + np.arange(3)
    with pytest.raises(DataError, match="`labels` must number the classes.*Received: labels up to"):
        image_set(labels=labels, class_names=class_names)


def test_held_out_images_that_are_training_images_are_counted():
    images = image_set(n=20)
    twice = dataclasses.replace(images, images=np.concatenate([images.images] * 2))
    data = ImageData(twice, image_set(n=2)).hold_out(3)
    assert "3 held-out images are training images, too, pixel by pixel." in described(data)[1:]
