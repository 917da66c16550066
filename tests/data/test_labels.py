"""Labels of any form: one meaning in arrays, lists, streams and archives.

Rejected: values that are no labels and become one class; the first of several labels; class
capsules for numbers that no image has; and held-out images of one class.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_capsule_poe as kcp
from keras_capsule_poe.data import DataError, ImageData, ImageSet, load_images
from keras_capsule_poe.data.arrays import image_data
from keras_capsule_poe.data.labels import (
    Part,
    Words,
    check_classifier_labels,
    class_rows,
    number_labels,
)

try:
    import pandas as pd
except ImportError:  # the cases with its series are left out
    pd = None

N = 6
IMAGES = np.random.default_rng(0).integers(0, 256, (60, 9, 9), dtype="uint8")
THREE = np.arange(N) % 3


def numbered(labels, n=N, **options):
    return number_labels({"training": Part(labels, n, "`y`")}, **options)


@pytest.mark.parametrize(
    "labels, wanted, names",
    [
        ([1, 2, 3] * 2, THREE, "1 2 3"),
        (np.array([2019, 3019, 4019] * 2), THREE, "2019 3019 4019"),
        ([1, 2, 10] * 2, THREE, "1 2 10"),
        (np.array([2**40, 2**41, 2**63] * 2, "uint64"), THREE, f"{2**40} {2**41} {2**63}"),
        ([0.0, 1.0, 2.0] * 2, THREE, "0 1 2"),
        (THREE.astype("int8")[:, None], THREE, "0 1 2"),
        (["a", b"b", "c"] * 2, THREE, "a b c"),
        (np.array([b"a", b"b", b"c"] * 2), THREE, "a b c"),
        (np.array([1, 2, 3] * 2, object), THREE, "1 2 3"),
        ([False, True] * 3, THREE[:2].tolist() * 3, "False True"),
        *(
            (
                (pd.Series(["a", "b", "c"] * 2, dtype="category"), THREE, "a b c"),
                (pd.Series([3, 5, 9] * 2, index=range(10, 16)), THREE, "3 5 9"),
            )
            if pd
            else ()
        ),
        (tf.constant([4, 5, 6] * 2), THREE, "4 5 6"),
        (tf.constant(["a", "b", "c"] * 2), THREE, "a b c"),
        ([tf.constant(4), tf.constant(5), tf.constant(6)] * 2, THREE, "4 5 6"),
        (Words(THREE, ("c", "b", "a")), 2 - THREE, "a b c"),
        (np.eye(3)[THREE], THREE, "0 1 2"),
        (np.eye(3, dtype=bool)[THREE], THREE, "0 1 2"),
        ([[3, 7], [2, 5]] * 3, [[1, 3], [0, 2]] * 3, "2 3 5 7"),
        ([["a", "b"], ["b", "c"]] * 3, [[0, 1], [1, 2]] * 3, "a b c"),
        (1 - np.eye(3)[THREE], [[1, 2], [0, 2], [0, 1]] * 2, "0 1 2"),
        (tf.ragged.constant([[3, 7], [2, 5]] * 3), [[1, 3], [0, 2]] * 3, "2 3 5 7"),
    ],
)
def test_the_labels_that_occur_are_numbered_and_are_the_names(labels, wanted, names):
    found = numbered(labels)
    assert found.labels["training"].dtype == np.int64
    np.testing.assert_array_equal(found.labels["training"], wanted)
    assert found.class_names == tuple(names.split())


@pytest.mark.parametrize(
    "labels", [None, [None] * N, [np.nan] * N, *([pd.Series([None] * N)] if pd else [])]
)
def test_images_without_labels(labels):
    assert number_labels({"training": Part(labels, N, "`y`")}) == ({}, None, ())


@pytest.mark.parametrize(
    "labels, words",
    [
        (np.linspace(0, 0.99, N), "Received: fractions from 0 to 0.99"),
        (np.zeros((N, 3)), "at least one. Received: 0 to 0 labels an image"),
        ([[1, 0, 0], [1, 1, 0]] * 3, "Received: 1 to 2 labels an image"),
        ([[1], [1, 2]] * 3, "equally many labels. Received: 1 to 2 labels an image"),
        ([1, None, 2] * 2, "Received: none for 2 of 6 images"),
        ([1.0, np.nan, 2.0] * 2, "Received: none for 2 of 6 images"),
        (["a", "", "b"] * 2, "Received: none for 2 of 6 images"),
        (np.ma.array([1, 2] * 3, mask=[1, 0] * 3), "Received: none for 3 of 6 images"),
        ([1, "a", 2] * 2, "all integers or all strings. Received: 4 of type int, 2 of type str"),
        ([-1, 1] * 3, "labels from -1 to 1. If -1 stands for no label"),
        ([[0.9, 0.05, 0.05]] * N, "Received: fractions.*argmax"),
        ([[1.2, -0.2]] * N, "from 0 to 1.*Received: values from -0.2 to 1.2"),
        ([np.inf] * N, "fractions from inf to inf"),
        (np.zeros((N, 1, 1), int), r"one label an image.*Received: shape \(6, 1, 1\)"),
        (np.array(["2020"] * N, "datetime64[Y]"), "dtype datetime64"),
        ([{}] * N, "6 of type dict"),
        ("abcdef", r"Received: shape \(\)"),
    ],
)
def test_what_is_no_label_is_refused_in_a_line(labels, words):
    with pytest.raises(DataError, match=words) as refused:
        numbered(labels)
    assert "\n" not in str(refused.value)


def parts(**labels):
    return {name: Part(each, len(each), f"labels of {name}") for name, each in labels.items()}


def test_parts_have_the_same_numbers_and_missing_classes_are_named():
    found = number_labels(parts(training=[1, 5, 5], test=[5, 9]))
    assert found.labels["training"].tolist() == [0, 1, 1] and found.labels["test"].tolist() == [
        1,
        2,
    ]
    assert found.notes == ("No training images of: 9.", "No test images of: 1.")
    for other, words in [
        (["a", "b"], "integers as .*training, strings as .*test"),
        ([[1, 2]], "2 as"),
    ]:
        with pytest.raises(DataError, match=words):
            number_labels(parts(training=[1, 2], test=other))


def test_names_of_integers_and_of_words():
    assert numbered([0, 1], 2, class_names=["cat", "dog", "eel"]).class_names == (
        "cat",
        "dog",
        "eel",
    )
    found = numbered(["eel", "cat"], 2, class_names=["eel", "cat"])
    assert found.labels["training"].tolist() == [0, 1]
    for labels, words in [([0, 2], "from 0 to 2. Received: 2"), (["cow", "cat"], "no cow among")]:
        with pytest.raises(DataError, match=words):
            numbered(labels, 2, class_names=["cat", "dog"])


def test_former_runs_keep_their_numbers(tmp_path):
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=1 + np.arange(60) % 3)
    former, now = (load_images(tmp_path / "a.npz", data_version=v) for v in (2, 3))
    assert (former.classes, former.train.class_names) == (4, None)
    assert (now.classes, now.train.class_names) == (3, ("1", "2", "3"))
    np.testing.assert_array_equal(former.train.labels, now.train.labels + 1)
    np.testing.assert_array_equal(former.train.images, now.train.images)
    assert now.class_counts() == "training/test images of 3 classes: 1 18/2, 2 18/2, 3 18/2"


@pytest.mark.parametrize(
    "training, test, is_shown",
    [([0, 1] * 5, [0, 1], False), ([0, 0, 1], [0, 1], True), ([0, 1] * 5, [0, 0], True)],
)
def test_classes_are_counted_if_they_are_unbalanced(training, test, is_shown):
    sets = (
        ImageSet(IMAGES[: len(k), ..., None], np.array(k), ("cat", "dog")) for k in (training, test)
    )
    assert (ImageData(*sets).class_counts(1.5) is not None) == is_shown


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::keras_capsule_poe.errors.TrainingWarning")
def test_a_former_run_of_an_array_goes_on(tmp_path):
    """Rejects labels and held-out images by the rules of today, which are other images."""
    given = {"model": "rbm", "hidden": 3, "epochs": 1, "verbose": 0, "folder": tmp_path / "m"}
    labelled = (IMAGES, np.repeat([1, 2, 3], 20))
    kcp.train(labelled, data_version=2, **given)
    before = json.loads((tmp_path / "m" / "run.json").read_text())
    # The last stage runs again, and loads the images.
    (tmp_path / "m" / "export" / "done.json").unlink()
    kcp.train(labelled, **given)
    after = json.loads((tmp_path / "m" / "run.json").read_text())
    assert after["fingerprint"] == before["fingerprint"] and after["config"]["data_version"] == 2


# Python: arrays and streams


class Batches(keras.utils.PyDataset):
    def __init__(self, *arrays):
        super().__init__()
        self.arrays = arrays

    def __len__(self):
        return 6

    def __getitem__(self, k):
        return tuple(each[10 * k : 10 * k + 10] for each in self.arrays)


class Endless(Batches):
    num_batches = None


def dataset(*arrays):
    return tf.data.Dataset.from_tensor_slices(arrays).batch(10)


def generator(*arrays):
    return (tuple(each[k : k + 10] for each in arrays) for k in range(0, 60, 10))


FOUR = IMAGES[..., None]
STREAMS = {"dataset": dataset, "PyDataset": Batches, "generator": generator}
LABELS = {
    "integers": 7 * (np.arange(60) % 3),
    "words": np.array(["a", "bc", "d"])[np.arange(60) % 3],
    "rows": np.eye(3)[np.arange(60) % 3],
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("stream", STREAMS)
def test_streams_have_the_labels_of_arrays(stream, kind):
    wanted = image_data(FOUR, LABELS[kind])
    found = image_data(STREAMS[stream](FOUR, LABELS[kind]))
    assert found.fingerprints == wanted.fingerprints and found.classes == 3
    assert found.train.class_names == wanted.train.class_names
    assert found.class_counts().startswith("training/held-out images of 3 classes: ")
    valid = image_data(FOUR, LABELS[kind], STREAMS[stream](FOUR, LABELS[kind]))
    assert valid.held_out.fingerprint == ImageSet(FOUR).fingerprint


@pytest.mark.parametrize(
    "x, options, words",
    [
        (dataset(FOUR, np.linspace(0, 0.9, 60)), {}, "labels of `x` must be integers.*fractions"),
        (dataset(FOUR, np.arange(60) - 1), {}, "labels from -1 to 58"),
        (dataset(FOUR, np.arange(60), np.ones(60)), {}, "Received: 3 arrays. Sample weights"),
        (Batches(FOUR, np.arange(60), np.ones(60)), {}, "Received: 3 arrays. Sample weights"),
        (Endless(FOUR), {}, "must have an end"),
        (dataset(FOUR).repeat(), {}, "must have an end"),
        (iter([{"image": FOUR}]), {}, "Received: dicts with 'image'"),
        (iter([(FOUR, np.arange(60)), FOUR]), {}, "labels with all images or with none"),
        (iter(()), {}, "an empty stream"),
        (dataset(FOUR), {"y": np.arange(60)}, "`y` must be None"),
        (FOUR, {"y": np.arange(59)}, r"of shape \(60,\).*Received: shape \(59,\)"),
        (FOUR, {"validation_data": (FOUR, np.arange(60), 1)}, "tuple of 3. Sample weights"),
        (FOUR, {"y": np.arange(60), "validation_data": (FOUR, ["a"] * 60)}, "integers as `y`"),
    ],
    ids=range(13),
)
def test_streams_and_arrays_that_cannot_be_used(x, options, words):
    with pytest.raises(DataError, match=words):
        image_data(x, **options)


def test_classes_of_validation_data_alone_are_named():
    data = image_data(FOUR[:9], ["a", "b", "c"] * 3, (FOUR[9:11], ["a", "d"]))
    assert data.notes[:2] == ("No training images of: d.", "No held-out images of: b, c.")
    assert (
        data.class_counts() == "training/held-out images of 4 classes: a 3/1, b 3/0, c 3/0, d 0/1"
    )


# Held-out images


@pytest.mark.parametrize("split", [None, 0.2])
def test_held_out_images_of_labelled_arrays_are_drawn_by_class(split):
    labels = np.repeat(["a", "b", "c"], 20)
    data = image_data(IMAGES, labels, validation_split=split)
    n = 3 if split is None else 12
    assert np.bincount(data.held_out.labels).tolist() == [n // 3] * 3
    known = {image.tobytes(): "abc".index(label) for image, label in zip(FOUR, labels)}
    for part in (data.train, data.held_out):
        assert [known[image.tobytes()] for image in np.asarray(part.images)] == [*part.labels]
    # Images without labels, or with one image a class, are held out as in Keras.
    for y in (None, np.arange(60)):
        last = image_data(IMAGES, y, validation_split=split)
        np.testing.assert_array_equal(last.held_out.images, FOUR[-n:])
    assert {*image_data(IMAGES, labels, data_version=2).held_out.labels} == {2}


def test_blocks_of_classes_are_held_out_by_class():
    for labels in (np.repeat([2, 0, 1], 20), np.repeat([2, 1, 0], 20)):
        data = ImageData(ImageSet(FOUR, labels), ImageSet(FOUR))
        assert sorted(data.hold_out(6).held_out.labels) == [0, 0, 1, 1, 2, 2]
        assert {*data.hold_out(6, in_order=True).held_out.labels} == {labels[-1]}
    mixed = ImageData(ImageSet(FOUR, np.random.default_rng(0).permutation(labels)), ImageSet(FOUR))
    np.testing.assert_array_equal(mixed.hold_out(6).held_out.images, FOUR[-6:])


# Classifiers


def test_a_classifier_needs_two_classes():
    one = ImageSet(FOUR, np.zeros(60, "int64"), ("cat", "dog"))
    with pytest.raises(DataError, match="at least two classes. Received: 60 images of class 'cat'"):
        check_classifier_labels(ImageData(one, one, held_out=one), 2)


@pytest.mark.parametrize(
    "labels, classes, wanted",
    [
        ([0, 2], 3, [[1, 0, 0], [0, 0, 1]]),
        (np.array([[0], [2]], "uint8"), 3, [[1, 0, 0], [0, 0, 1]]),
        ([True, False], 2, [[0, 1], [1, 0]]),
        ([0.0, 1.0], 1, [[0], [1]]),
        ([[0.5, 0.25, 0.25]], 3, [[0.5, 0.25, 0.25]]),
        (np.array([[1, 1, 0], [0, 0, 0]]), 3, [[1, 1, 0], [0, 0, 0]]),
        (np.zeros((0, 3)), 3, np.zeros((0, 3))),
        (tf.one_hot([1], 2, dtype="bfloat16"), 2, [[0, 1]]),
        *([(pd.DataFrame({"a": [1, 0], "b": [0, 1]}), 2, np.eye(2))] if pd else []),
    ],
)
def test_rows_of_a_compiled_classifier(labels, classes, wanted):
    found = class_rows(labels, classes)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, wanted)
