"""Models that vote, by hand.

Rejected: a vote of the named classes, each counting one; a test of the first against the ensemble;
one right class of a pair that counts.
"""

import numpy as np
import pytest

from keras_capsule_poe.data import ImageSet
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.accuracy import are_right, classified, wilson_interval
from keras_capsule_poe.evaluation.ensemble import comparison, vote


def said(*lengths):
    lengths = np.array(lengths, "float32")
    return {"probabilities": lengths, "classes": lengths.argmax(axis=1)}


# Three images: two name the second class weakly and one the first surely; then the reverse of
# who is right; then all agree.
FIRST = said([0.9, 0.1], [0.8, 0.1], [0.1, 0.5])
SECOND = said([0.3, 0.4], [0.1, 0.9], [0.1, 0.5])
THIRD = said([0.3, 0.4], [0.1, 0.9], [0.2, 0.6])


def test_the_mean_of_the_lengths_decides():
    found = vote({"a": FIRST, "b": SECOND, "c": THIRD})
    np.testing.assert_allclose(
        found["probabilities"], [[0.5, 0.3], [1 / 3, 1.9 / 3], [0.4 / 3, 1.6 / 3]], rtol=1e-6
    )
    majority = np.median([each["classes"] for each in (FIRST, SECOND, THIRD)], axis=0)
    assert found["classes"].tolist() == [0, 1, 1] and majority.tolist() == [1, 1, 1]


def test_accuracies_and_the_test_against_the_first():
    labels = np.array([0, 1, 1])
    found = comparison({"a": FIRST, "b": SECOND, "c": THIRD}, labels, ["length"] * 3)
    assert list(found["models"]) == ["a", "b", "c", "ensemble"]
    for name, right in {"a": 2, "b": 2, "c": 2, "ensemble": 3}.items():
        low, high = wilson_interval(right, 3)
        expected = {"accuracy": right / 3, "low": low, "high": high, "images": 3}
        assert found["models"][name] == expected
    assert list(found["mcnemar"]) == ["b", "c", "ensemble"]
    # The first model is wrong on the second image alone; the second model on the first alone.
    assert found["mcnemar"]["b"] == {"only_this_right": 1, "only_other_right": 1, "p": 1.0}
    assert found["mcnemar"]["ensemble"] == {"only_this_right": 0, "only_other_right": 1, "p": 1.0}


def test_outputs_of_two_kinds_have_no_ensemble():
    found = comparison({"a": FIRST, "b": SECOND}, np.array([0, 1, 1]), ["length", "probability"])
    assert list(found["models"]) == ["a", "b"] and list(found["mcnemar"]) == ["b"]


def test_of_pairs_all_classes_must_be_named():
    first = said([0.9, 0.1, 0.5], [0.9, 0.1, 0.5])
    second = said([0.5, 0.7, 0.2], [0.5, 0.2, 0.4])
    labels = np.array([[0, 1], [2, 0]])
    found = comparison({"a": first, "b": second}, labels, ["length"] * 2)["models"]
    # Means 0.7, 0.4, 0.35 and 0.7, 0.15, 0.45.
    accuracies = [found[name]["accuracy"] for name in ("a", "b", "ensemble")]
    assert accuracies == [0.5, 1.0, 1.0]


def test_models_that_cannot_vote_are_refused():
    with pytest.raises(BadUse, match="equally many classes. Received: a with 2, b with 3"):
        vote({"a": FIRST, "b": said([0.1, 0.2, 0.3])})
    with pytest.raises(BadUse, match="Accuracy needs labels. Received: images without labels"):
        are_right(FIRST, None)

    class Drawing:
        TITLE = "Drawing"

    with pytest.raises(BadUse, match="Only classifiers have predictions. Received: Drawing"):
        classified(Drawing(), ImageSet(np.zeros((4, 2, 2, 1), "uint8")))
