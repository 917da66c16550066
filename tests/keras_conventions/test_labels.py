"""Labels of compiled classifiers: the same checks for arrays and for streams, and soft labels.

Rejected: labels of a stream that show no class without an error; an accuracy of zero for smoothed
labels; and the capsules of all classes as the label's.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import CapsuleMask
from keras_capsule_poe.core.labels import named_rightly
from tests.keras_conventions.test_inputs import SOURCES

try:
    import pandas as pd
except ImportError:  # the cases with its series are left out
    pd = None

BAD = {
    "from one": (lambda y: y + 1, "from 0 to 3, for 4 classes. Received: values from 1 to 4"),
    "minus one": (lambda y: y - 1, "Received: values from -1 to 2"),
    "fractions": (lambda y: y / 5, "must be integers or.*Received: fractions from 0 to 0.6"),
    "NaN": (lambda y: np.where(y > 2, np.nan, y), "Received: none for 1 of 4 images"),
    "large": (lambda y: y + 2**40, "Received: values from 1099511627776 to"),
    "words": (lambda y: y.astype(str), "Received: .*strings"),
    "columns": (lambda y: np.eye(5)[y], r"zeros and ones \(batch, 4\). Received: shape"),
    "out of range": (lambda y: 1.5 * np.eye(4)[y], "from 0 to 1.*Received: values from 0 to 1.5"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_streams_are_checked_as_they_are_read(conv_classifier, images, labels, kind):
    change, words = BAD[kind]
    model, bad = conv_classifier(), change(labels)
    model.compile("adam")
    words = words.replace("1 of 4", "(1 of 4|4 of 16)")
    arrays = (images, labels)
    for data in ((images, bad), *((make(images, bad),) for make in SOURCES.values())):
        with pytest.raises(ValueError, match=words) as refused:
            model.fit(*data, verbose=0, shuffle=False)
        assert "\n" not in str(refused.value)
    for data in ((images, bad), SOURCES["dataset"](images, bad)):
        with pytest.raises(ValueError, match=words):
            model.fit(*arrays, validation_data=data, verbose=0)
    with pytest.raises(ValueError, match=words):
        model.evaluate(SOURCES["PyDataset"](images, bad), verbose=0)


@pytest.mark.parametrize(
    "y, words",
    [
        (np.zeros((16, 4)), "zeros alone, so that no image has a class"),
        ([None] * 16, "Received: no labels"),
        (np.arange(15) % 4, r"of shape \(16,\).*Received: shape \(15,\)"),
    ],
)
def test_arrays_that_are_no_labels(conv_classifier, images, y, words):
    model = conv_classifier()
    model.compile("adam")
    with pytest.raises(ValueError, match=words):
        model.fit(images, y, verbose=0)


def test_ragged_labels_of_a_stream(conv_classifier, images, labels):
    ragged = tf.RaggedTensor.from_row_lengths(np.arange(16) % 4, [1] * 16)
    data = tf.data.Dataset.from_tensor_slices((images, ragged)).batch(4)
    model = conv_classifier()
    model.compile("adam")
    with pytest.raises(ValueError, match="Received: a data set of RaggedTensorSpec"):
        model.fit(data, verbose=0)


def test_labels_of_other_containers(conv_classifier, images, labels):
    found = []
    for y in (
        labels,
        labels.tolist(),
        *([pd.Series(labels)] if pd else []),
        tf.constant(labels),
        labels.astype(object),
    ):
        keras.utils.set_random_seed(0)
        model = conv_classifier()
        model.compile("adam")
        found.append(model.fit(images, y, shuffle=False, verbose=0).history)
    assert all(history == found[0] for history in found[1:])


def smoothed(rows):
    return (0.9 * rows + 0.1 / rows.shape[1]).astype("float32")


@pytest.mark.parametrize("kind", ["arrays", "dataset", "PyDataset"])
def test_accuracy_of_smoothed_and_mixed_rows(conv_classifier, images, labels, kind):
    model = conv_classifier()
    model.compile("adam")
    hard = model.evaluate(images, labels, verbose=0, return_dict=True)["accuracy"]
    rows = np.eye(4, dtype="float32")[labels]
    for soft in (smoothed(rows), 0.7 * rows + 0.3 * rows[::-1]):
        data = (images, soft) if kind == "arrays" else (SOURCES[kind](images, soft),)
        found = model.evaluate(*data, verbose=0, return_dict=True)
        assert found["accuracy"] == pytest.approx(hard) and hard > 0


def test_the_largest_labels_are_those_of_an_image():
    lengths = np.array([[0.3, 0.2, 0.1], [0.3, 0.7, 0.1]])
    for labels, wanted in [
        ([[0.9, 0.05, 0.05], [0.9, 0.05, 0.05]], [1, 0]),
        ([[0.5, 0.5, 0], [0, 0.5, 0.5]], [1, 0]),
        ([[1, 1, 0], [1, 1, 0]], [1, 1]),
    ]:
        assert np.asarray(named_rightly(np.array(labels), lengths)).tolist() == wanted
    kept = CapsuleMask()(np.ones((1, 3, 2), "float32"), np.array([[0.05, 0.9, 0.05]]))
    assert np.asarray(kept)[0, :, 0].tolist() == [0, 1, 0]
