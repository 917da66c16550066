"""Metrics of classifiers: calibration by hand, ensembles, crops and McNemar's exact test.

Rejected: bins that all count alike; the mean gap of single images; bins that are closed below;
lengths that are normalised by a softmax; a pair of which only the longest capsule counts; a vote
of the named classes, each counting one; a test of the first against the ensemble; one right class
of a pair that counts; windows of other places or of another size, one counted twice, windows that
leave the image; a test that counts the images that both name alike, and a one-sided one.
"""

import itertools

import keras
import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from keras_capsule_poe.data import ImageSet
from keras_capsule_poe.data.augmentation import center_crop
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.classification import (
    BINS,
    are_right,
    calibration_metrics,
    classification_metrics,
    classified,
    classified_crops,
    comparison,
    mcnemar,
    reliability,
    vote,
    wilson_interval,
)


def test_the_error_by_hand():
    confidence = np.array([0.95, 0.95, 0.95, 0.65, 0.65, 0.20])
    is_right = np.array([1, 1, 0, 1, 1, 0])
    found = reliability(confidence, is_right, bins=10)
    # 3/6 |2/3 - 0.95| + 2/6 |1 - 0.65| + 1/6 |0 - 0.2|
    expected = 0.5 * (0.95 - 2 / 3) + 0.35 / 3 + 0.2 / 6
    assert found["error"] == pytest.approx(expected)
    alike = np.mean([0.95 - 2 / 3, 0.35, 0.2])
    for wrong in (alike, np.abs(confidence - is_right).mean()):
        assert abs(expected - wrong) > 0.01
    assert found["confidence"] == pytest.approx(4.35 / 6) and found["accuracy"] == 4 / 6
    # 0.2 is the upper end of the second bin.
    assert found["bins"]["0.10-0.20"] == {"images": 1, "confidence": 0.2, "accuracy": 0.0}
    assert found["bins"]["0.20-0.30"] == {"images": 0, "confidence": None, "accuracy": None}


def test_bins_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    confidence = np.concatenate([random.uniform(size=500), np.arange(BINS + 1) / BINS])
    is_right = random.uniform(size=len(confidence)) < confidence
    found = [row for row in reliability(confidence, is_right)["bins"].values() if row["images"]]
    share, mean = calibration_curve(is_right, confidence, n_bins=BINS)
    # Sums of the same numbers.
    np.testing.assert_allclose([row["accuracy"] for row in found], share, rtol=1e-12)
    np.testing.assert_allclose([row["confidence"] for row in found], mean, rtol=1e-12)
    assert sum(row["images"] for row in found) == len(confidence)


def test_lengths_as_they_are_and_normalised():
    lengths = np.array([[0.9, 0.3, 0.3], [0.2, 0.4, 0.2]], "float32")
    found = calibration_metrics(lengths, np.array([0, 0]))
    kinds = found["calibration"]
    assert list(kinds) == ["length", "normalised_length"]
    # (|1 - 0.9| + |0 - 0.4|)/2; the second has sums 1.5 and 0.8: 0.6 and 0.5, in one bin each.
    assert kinds["length"]["error"] == pytest.approx((0.1 + 0.4) / 2, rel=1e-6)
    assert kinds["normalised_length"]["error"] == pytest.approx((0.4 + 0.5) / 2, rel=1e-6)
    assert len(found["reliability"]) == BINS
    row = found["reliability"]["0.47-0.53"]
    assert row["normalised_length_images"] == 1 and row["length_images"] == 0
    assert row["normalised_length_accuracy"] == 0 and row["length_accuracy"] is None


def test_of_pairs_the_two_longest_are_judged():
    found = calibration_metrics(np.array([[0.9, 0.7, 0.1]]), np.array([[2, 0]]))
    assert list(found["calibration"]) == ["length"]
    # 0.9 is right and 0.7 wrong.
    assert found["calibration"]["length"]["error"] == pytest.approx((0.1 + 0.7) / 2)


def test_capsules_of_no_length_have_no_share():
    found = calibration_metrics(np.zeros((2, 3), "float32"), np.array([0, 1]))
    assert found["calibration"]["normalised_length"] == {
        "error": 0.5, "confidence": 0.0, "accuracy": 0.5
    }  # fmt: skip


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


def test_mcnemars_probability_is_that_of_coins_that_fall_as_unequally():
    for this, other in ((0, 0), (1, 0), (2, 5), (6, 1), (4, 4)):
        both = [(True, True)] * 3 + [(False, False)]
        found = mcnemar(*np.array([(True, False)] * this + [(False, True)] * other + both).T)
        throws = [sum(coins) for coins in itertools.product((0, 1), repeat=this + other)]
        gap = abs(this - other)
        expected = np.mean([abs(2 * heads - this - other) >= gap for heads in throws])
        assert (found["only_this_right"], found["only_other_right"]) == (this, other)
        assert found["p"] == pytest.approx(expected)


# Rows down and columns to the right of the middle.
PLACES = [(0, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (2, 2), (2, -2), (-2, 2), (-2, -2),
          (3, 3), (3, -3), (-3, 3), (-3, -3)]  # fmt: skip


class Corners:
    """Three probabilities from numbers that no two windows share, of any window it is given."""

    TITLE = "Corners"

    def __init__(self, height=4, width=6):
        self.view = keras.layers.CenterCrop(height, width, data_format="channels_last")

    def classify(self, images):
        seen = self.view(images)
        first, last = seen[:, 0, 0, 0], seen[:, -1, -1, 0]
        p = keras.ops.stack([first**2, first * last, keras.ops.sqrt(last)], axis=1)
        return {"probabilities": p, "classes": keras.ops.argmax(p, axis=1)}


@pytest.fixture
def images():
    # A room of 7 rows, whose middle is not a whole number, and of 6 columns: none to spare.
    shown = np.random.default_rng(0).integers(0, 256, (40, 11, 12, 1)).astype("uint8")
    return ImageSet(shown)


def test_the_mean_over_13_windows(images):
    pixels = images.images[..., 0] / 255
    expected = np.zeros((40, 3))
    for down, right in PLACES:
        first = pixels[:, 3 + down, 3 + right]
        last = pixels[:, 3 + down + 3, 3 + right + 5]
        expected += np.stack([first**2, first * last, np.sqrt(last)], axis=1) / 13
    found = classified_crops(Corners(), images)
    # Float32 numbers up to one.
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
    np.testing.assert_array_equal(found["classes"], expected.argmax(axis=1))
    assert np.any(found["classes"] != classified(Corners(), images)["classes"])


def test_the_one_in_the_middle_is_what_the_model_sees_by_itself(images):
    middle = ImageSet(center_crop(images.images[:, :, :11], 5))
    whole = ImageSet(images.images[:, :, :11])
    model = Corners(5, 5)
    for name, found in classified(model, whole).items():
        np.testing.assert_array_equal(found, classified(model, middle)[name])


def test_where_no_window_moves_there_are_no_crops(images):
    with pytest.raises(BadUse, match="must be 6 pixels larger.*11x12 and a window of 6x6"):
        classified_crops(Corners(6, 6), images)
    model = Corners()
    model.view = None
    with pytest.raises(BadUse, match="sees a window.*Received: Corners that sees all of it"):
        classified_crops(model, images)
    with pytest.raises(BadUse, match="Received: Nothing$"):
        classified_crops(type("Nothing", (), {"TITLE": "Nothing"})(), images)


def test_accuracy_needs_one_label_an_image():
    for labels, received in ((None, "no labels"), (np.zeros((4, 2), int), r"labels \(4, 2\)")):
        images = ImageSet(np.zeros((4, 8, 8, 1), "uint8"), labels)
        with pytest.raises(BadUse, match=f"one label an image. Received: {received}"):
            classification_metrics({"classes": np.zeros(4)}, images)


def test_wilsons_interval_holds_the_shares_that_are_not_refused():
    # By its definition: the shares p for which |right/n - p| <= z sqrt(p (1 - p) / n).
    p = np.linspace(0, 1, 200_001)
    for right, n in ((0, 10), (3, 10), (10, 10), (970, 1000)):
        limit = 1.959963984540054 * np.sqrt(p * (1 - p) / n) + 1e-12
        inside = p[np.abs(right / n - p) <= limit]
        # The grid's spacing.
        assert wilson_interval(right, n) == pytest.approx((inside.min(), inside.max()), abs=1e-5)
