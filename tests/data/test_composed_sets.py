"""Sets that are composed anew each epoch, their streams and their names."""

import numpy as np
import pytest
from scipy.io import savemat

from keras_capsule_poe.data import (
    ComposedSet,
    DataError,
    ImageData,
    ImageSet,
    epoch_order,
    load_images,
    stream,
)
from keras_capsule_poe.data.composed import (
    Affine,
    Overlapping,
    SideBySide,
    Translated,
    find_composed,
)


@pytest.fixture(scope="module")
def digits():
    return load_images("digits").train.head(200)


@pytest.fixture(scope="module")
def pairs(digits):
    return ComposedSet(digits, Overlapping(), "pairs")


def whole(stream):
    """A stream of tuples as one tuple of arrays."""
    batches = [tuple(np.asarray(part) for part in batch) for batch in stream]
    return tuple(np.concatenate(parts) for parts in zip(*batches))


def test_the_same_seed_and_epoch_give_the_same_images(digits):
    for composition in [Overlapping(), Translated(), Affine(), SideBySide()]:
        made = ComposedSet(digits, composition)
        rows = np.arange(20)
        first, again = (made.epoch(3, 5)(rows)["images"] for _ in range(2))
        assert np.array_equal(first, again)
        for seed, epoch in ((3, 6), (4, 5), (5, 3)):
            assert not np.array_equal(made.epoch(seed, epoch)(rows)["images"], first)


def test_an_image_does_not_depend_on_what_is_asked_with_it(pairs):
    rows = pairs.epoch(0, 1)
    all_at_once = rows(np.arange(200))
    some = np.array([150, 3, 77])
    for name, array in rows(some).items():
        assert np.array_equal(array, all_at_once[name][some])


def test_it_serves_as_an_image_set(pairs, digits):
    assert (len(pairs), pairs.image_shape, pairs.class_names) == (
        200,
        (36, 36, 1),
        digits.class_names,
    )
    fixed = pairs.fixed()
    assert np.array_equal(pairs.images, fixed.images)
    assert np.array_equal(pairs.labels, fixed.labels)
    assert pairs.extras["targets"].shape == (200, 2, 36, 36, 1)
    assert np.array_equal(pairs.head(7).images, pairs.images[:7])
    assert pairs.nbytes == digits.nbytes


def test_copies_are_epochs_one_after_another(pairs):
    twice = pairs.fixed(seed=2, copies=2)
    assert len(twice) == 400
    for epoch in range(2):
        rows = pairs.epoch(2, epoch)(np.arange(200))
        part = twice.take(slice(200 * epoch, 200 * (epoch + 1)))
        assert np.array_equal(part.images, rows["images"])
        assert np.array_equal(part.extras["targets"], rows["targets"])


def test_fingerprints_tell_compositions_and_images_apart(digits):
    sets = [
        ComposedSet(digits, Overlapping()),
        ComposedSet(digits, Overlapping(shift=6)),
        ComposedSet(digits, Translated(4, 4)),
        ComposedSet(digits.head(199), Overlapping()),
    ]
    assert len({made.fingerprint for made in sets}) == 4
    assert sets[0].fingerprint == ComposedSet(digits, Overlapping(), "other").fingerprint


def test_held_out_images_are_composed_of_digits_that_training_never_shows(pairs, digits):
    """Holding composed images out, instead of digits, would show training their partners."""
    data = ImageData(pairs, pairs.fixed()).hold_out(30)
    assert isinstance(data.train, ComposedSet) and isinstance(data.held_out, ImageSet)
    assert (len(data.train), len(data.held_out)) == (170, 30)
    assert np.array_equal(data.train.base.images, digits.images[:170])
    expected = ComposedSet(digits.tail(170), Overlapping()).fixed()
    assert np.array_equal(data.held_out.images, expected.images)
    assert data.summary() == "170 training, 30 held-out and 200 test images of 36x36x1"


def test_pairs_need_two_classes():
    for labels in [None, np.zeros(5, np.int64), np.zeros((5, 2), np.int64)]:
        images = ImageSet(np.zeros((5, 8, 8, 1), np.uint8), labels)
        with pytest.raises(
            DataError, match=r"needs images of at least 2 classes.* Received: 5 images"
        ):
            ComposedSet(images, Overlapping(), "pairs")
        assert len(ComposedSet(images, Translated())) == 5


def test_a_stream_visits_each_image_of_an_epoch_once(pairs):
    for epoch in range(2):
        options = {"batch_size": 64, "seed": 1, "first_epoch": epoch, "epochs": epoch + 1}
        images, labels, targets = whole(stream(pairs, ("images", "labels", "targets"), **options))
        expected = pairs.epoch(1, epoch)(epoch_order(200, 1, epoch))
        assert images.dtype == targets.dtype == np.float32 and labels.dtype == np.int64
        np.testing.assert_allclose(images, expected["images"] / 255, rtol=1e-6)
        np.testing.assert_allclose(targets, expected["targets"] / 255, rtol=1e-6)
        assert np.array_equal(labels, expected["labels"])


def noisy(images, random):
    return images.astype(np.float32) + random.random(images.shape, np.float32)


def test_a_resumed_stream_goes_on_as_the_whole_one(pairs, digits):
    for augment in [None, noisy]:
        for composed in [True, False]:
            images = pairs if composed else digits
            options = {"batch_size": 64, "seed": 5, "epochs": 3, "augment": augment}
            full = [np.asarray(batch) for batch, _ in stream(images, **options)]
            resumed = stream(images, first_epoch=1, first_step=2, **options)
            assert len(full) == 12 and len(resumed) == 6
            for found, (batch, _) in zip(full[6:], resumed):
                assert np.array_equal(found, batch)
            assert not np.array_equal(full[0], full[4])


def test_augmentation_is_of_images_alone_and_each_step_has_its_own(digits):
    same = ImageSet(np.zeros((4, 2, 2, 1), np.uint8), np.arange(4))
    seen = [
        (np.asarray(images), np.asarray(labels))
        for images, labels in stream(same, batch_size=2, seed=0, epochs=2, augment=noisy)
    ]
    assert len({images.tobytes() for images, _ in seen}) == 4
    assert sorted(np.concatenate([labels for _, labels in seen[:2]])) == [0, 1, 2, 3]


def test_augmentation_may_change_shape_and_dtype(digits):
    (images, _), *_ = stream(
        digits, batch_size=8, seed=0, augment=lambda images, random: images[:, 2:-2] - 0.5
    )
    assert images.shape == (8, 24, 28, 1) and images.dtype == "float64"


def test_what_there_is_not_cannot_be_streamed(digits):
    with pytest.raises(ValueError, match="`names` must be some of images, labels. .* targets"):
        stream(digits, ("images", "targets"), batch_size=8, seed=0)
    with pytest.raises(ValueError, match="`batch_size` must be at least 1"):
        stream(digits, batch_size=0, seed=0)


def ink_of(images):
    """What each image shows, wherever it lies: the box around its ink, as bytes."""
    boxes = []
    for image in images[..., 0]:
        rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
        boxes.append(image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].tobytes())
    return set(boxes)


def test_names():
    for name, base, kind, shift, copies in [
        ("multimnist", "mnist", "multi", None, 1),
        ("multimnist/shift=6", "mnist", "multi", 6, 1),
        ("affnist", "mnist", "affine", None, 1),
        ("affnist/copies=32", "mnist", "affine", None, 32),
        ("mnist_translated/shift=0,copies=2", "mnist", "translated", 0, 2),
        ("fashion_mnist_multi", "fashion_mnist", "multi", None, 1),
        ("digits_affine", "digits", "affine", None, 1),
    ]:
        found = find_composed(name)
        assert (found.base, found.kind, found.shift, found.copies) == (base, kind, shift, copies)


def test_other_names():
    for name in ["mnist", "mnist_corrupted/fog", "moving_mnist", "./multimnist"]:
        assert find_composed(name) is None


def test_settings_that_there_are_not():
    for settings in ["shift", "shift=", "shift=-1", "shift=1,shift=2", "copies=0", "pad=3", ""]:
        with pytest.raises(
            DataError, match=f"shift and copies .* Received: 'multimnist/{settings}'"
        ):
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
