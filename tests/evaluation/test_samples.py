"""The classifier that judges samples, and what is counted of its verdicts."""

import numpy as np
import pytest

from keras_capsule_poe.data import ImageSet, load_images
from keras_capsule_poe.evaluation.classifier import accuracy, trained_judge
from keras_capsule_poe.evaluation.samples import by_column, compared, judged


@pytest.fixture(scope="module")
def digits():
    return load_images("digits", seed=0)


@pytest.fixture(scope="module")
def cached(digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    return trained_judge(digits.train, folder), folder


def test_the_classifier_learns(cached, digits):
    # Digits are easy: nearest neighbours name 98% of them.
    assert accuracy(cached[0], digits.test) > 0.9


def test_the_classifier_is_pinned_and_cached(cached, digits, monkeypatch):
    judge, folder = cached
    (path,) = folder.iterdir()
    assert digits.train.fingerprint in path.name
    written = path.stat().st_mtime_ns
    again = trained_judge(digits.train, folder)
    assert path.stat().st_mtime_ns == written
    for one, other in zip(judge.judge(digits.test.images), again.judge(digits.test.images)):
        np.testing.assert_array_equal(one, other)
    path.write_bytes(b"damaged")
    monkeypatch.setattr("keras_capsule_poe.evaluation.classifier.EPOCHS", 1)
    mended = trained_judge(digits.train, folder)
    assert path.stat().st_size > 1000 and accuracy(mended, digits.test) > 0.2


def test_uint8_and_pixels_are_judged_alike(cached, digits):
    shown = digits.test.images[:5]
    for a, b in zip(cached[0].judge(shown), cached[0].judge(shown.astype("float32") / 255)):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_classifier_needs_labels(digits, tmp_path):
    with pytest.raises(ValueError, match="needs labels"):
        trained_judge(ImageSet(digits.train.images[:5]), tmp_path)


def test_judged_counts():
    classes = np.array([[0.95, 0.05, 0], [0.5, 0.3, 0.2], [0, 0.92, 0.08], [0.05, 0.95, 0]])
    found = judged(classes)
    mean = classes.mean(axis=0)
    assert found["recognised"] == 0.75 and found["classes"] == 2
    assert found["label_entropy"] == pytest.approx(-(mean * np.log(mean)).sum())


def test_columns():
    named = np.array([0, 0, 1, 1, 1, 1, 2, 2])
    capsule = np.array([4, 4, 4, 7, 7, 7, 9, 9])
    found = by_column(np.eye(3)[named], capsule)
    assert found["purity"] == pytest.approx((2 / 3 + 1 + 1) / 3)
    assert found["modal_classes"] == 3


def test_compared_has_no_distance_between_the_same():
    features = np.random.default_rng(0).normal(size=(200, 8))
    found = compared(features, features)
    assert found["frechet"] == pytest.approx(0, abs=1e-9) and found["coverage"] == 1
