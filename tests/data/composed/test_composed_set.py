"""Sets that are composed anew each epoch, and the streams of them."""

import numpy as np
import pytest

from keras_capsule_poe.data import (
    ComposedSet,
    DataError,
    ImageData,
    ImageSet,
    epoch_order,
    load_images,
    stream,
)
from keras_capsule_poe.data.composed import Affine, Overlapping, SideBySide, Translated


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


@pytest.mark.parametrize("composition", [Overlapping(), Translated(), Affine(), SideBySide()])
def test_the_same_seed_and_epoch_give_the_same_images(digits, composition):
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


@pytest.mark.parametrize("labels", [None, np.zeros(5, np.int64), np.zeros((5, 2), np.int64)])
def test_pairs_need_two_classes(labels):
    images = ImageSet(np.zeros((5, 8, 8, 1), np.uint8), labels)
    with pytest.raises(DataError, match=r"needs images of at least 2 classes.* Received: 5 images"):
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


@pytest.mark.parametrize("augment", [None, noisy])
@pytest.mark.parametrize("composed", [True, False])
def test_a_resumed_stream_goes_on_as_the_whole_one(pairs, digits, composed, augment):
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
