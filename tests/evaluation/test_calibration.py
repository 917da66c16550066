"""The calibration error by hand, and bins as scikit-learn makes them.

Rejected: bins that all count alike; the mean gap of single images; bins that are closed below;
lengths that are normalised by a softmax; a pair of which only the longest capsule counts.
"""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from keras_capsule_poe.evaluation.calibration import (
    BINS,
    calibration_metrics,
    reliability,
    reliability_chart,
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


def test_the_diagram_has_a_bar_for_each_bin_with_images():
    table = calibration_metrics(np.array([[0.9, 0.1], [0.89, 0.1], [0.3, 0.5]]), np.zeros(3, int))
    lengths, normalised = reliability_chart(table["reliability"]).axes
    assert [bar.get_height() for bar in lengths.patches] == [0, 1]
    assert [text.get_text() for text in lengths.texts] == ["1", "2"]
    assert lengths.patches[1].get_x() < 0.9 < lengths.patches[1].get_x() + 1 / BINS
    assert "normalised" in normalised.get_xlabel()
