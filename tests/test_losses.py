"""The margin loss."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import MarginLoss


def by_hand(labels, lengths, positive=0.9, negative=0.1, weight=0.5):
    total = 0.0
    for t, v in zip(labels, lengths):
        total += t * max(0, positive - v) ** 2 + weight * (1 - t) * max(0, v - negative) ** 2
    return total


def test_it_is_summed_over_classes_and_averaged_over_images():
    random = np.random.default_rng(0)
    # Several labels an image, and none.
    labels, lengths = random.integers(2, size=(6, 5)), random.uniform(size=(6, 5))
    each = [by_hand(*row) for row in zip(labels, lengths)]
    np.testing.assert_allclose(MarginLoss(reduction=None)(labels, lengths), each, rtol=1e-5)
    np.testing.assert_allclose(MarginLoss()(labels, lengths), np.mean(each), rtol=1e-5)
    other = MarginLoss(0.8, 0.2, 1.0, reduction=None)
    each = [by_hand(*row, 0.8, 0.2, 1.0) for row in zip(labels, lengths)]
    np.testing.assert_allclose(other(labels, lengths), each, rtol=1e-5)


def test_nothing_is_lost_beyond_the_margins():
    assert float(MarginLoss()(np.array([[1, 0]]), np.array([[0.95, 0.05]]))) == 0


def test_integers_are_refused_in_words():
    for labels in (np.array([1, 0]), np.array([[1], [0]])):
        with pytest.raises(ValueError, match="`y_true` must have the shape.*Received"):
            MarginLoss().call(labels, np.ones((2, 3)))


@pytest.mark.parametrize("value", [0, -1, True, float("nan"), "much"])
def test_bad_arguments_are_refused(value):
    for name in ("positive", "negative", "absent_weight"):
        with pytest.raises(ValueError, match=rf"`{name}` must be .*Received: {name}="):
            MarginLoss(**{name: value})


def test_config_round_trip():
    loss = MarginLoss(0.8, 0.2, 1.0)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert copy.get_config() == loss.get_config()
