"""The classifier that judges samples, and what is counted of its verdicts."""

import numpy as np
import pytest

from keras_capsule_poe.data import ImageSet, load_images
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.classifier import _cache_path, evaluation_classifier
from keras_capsule_poe.io.atomic import user_path


@pytest.fixture(scope="module")
def digits():
    return load_images("digits", seed=0)


@pytest.fixture(scope="module")
def cached(digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    return evaluation_classifier(digits.train, folder), folder


def test_the_classifier_learns(cached, digits):
    # Digits are easy: nearest neighbours name 98% of them.
    assert cached[0].accuracy(digits.test) > 0.9


@pytest.mark.long
def test_the_classifier_is_pinned_and_cached(cached, digits, monkeypatch):
    classifier, folder = cached
    (path,) = folder.iterdir()
    assert digits.train.fingerprint in path.name
    written = path.stat().st_mtime_ns
    again = evaluation_classifier(digits.train, folder)
    assert path.stat().st_mtime_ns == written
    for one, other in zip(classifier(digits.test.images), again(digits.test.images)):
        np.testing.assert_array_equal(one, other)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 64  # among the weights
    path.write_bytes(content)
    monkeypatch.setattr("keras_capsule_poe.evaluation.classifier.EPOCHS", 1)
    mended = evaluation_classifier(digits.train, folder)
    assert path.read_bytes() != content and mended.accuracy(digits.test) > 0.2


def test_a_cache_that_cannot_be_written_costs_nothing(digits, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.evaluation.classifier.EPOCHS", 1)
    (tmp_path / "file").touch()
    few = ImageSet(digits.train.images[:100], digits.train.labels[:100])
    with pytest.warns(UserWarning, match="classifier is not kept for later: .*file"):
        classifier = evaluation_classifier(few, tmp_path / "file" / "cache")
    assert classifier.accuracy(few) > 0


@pytest.mark.long
def test_other_labels_get_another_classifier(digits, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.evaluation.classifier.EPOCHS", 1)
    few = ImageSet(digits.train.images[:400], digits.train.labels[:400])
    turned = ImageSet(few.images, (few.labels + 1) % 10)
    first, other = (evaluation_classifier(images, tmp_path) for images in (few, turned))
    assert len(list(tmp_path.iterdir())) == 2
    # What the one names rightly, the other calls the next class.
    assert min(other.accuracy(turned), first.accuracy(few)) > 0.4
    assert other.accuracy(few) < 0.2


@pytest.mark.long
def test_labels_may_be_any_whole_numbers(digits, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.evaluation.classifier.EPOCHS", 1)
    two = digits.train.labels < 2
    images = ImageSet(digits.train.images[two], 7 * digits.train.labels[two] - 5)
    classifier = evaluation_classifier(images, tmp_path)
    assert classifier.labels.tolist() == [-5, 2] and classifier.accuracy(images) > 0.9
    assert classifier(images.images[:3])[1].shape == (3, 2)


def test_uint8_and_pixels_are_judged_alike(cached, digits):
    shown = digits.test.images[:5]
    for a, b in zip(cached[0](shown), cached[0](shown.astype("float32") / 255)):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_classifier_needs_labels(digits, tmp_path):
    with pytest.raises(ValueError, match="needs labels"):
        evaluation_classifier(ImageSet(digits.train.images[:5]), tmp_path)


def test_a_user_without_a_home_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("CAPSPOE_CACHE", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda user: {}[user])

    class Images:
        fingerprint = label_fingerprint = "a"

    assert _cache_path(Images, 3, None).name.endswith("-a-3-a.keras")
    with pytest.raises(BadUse, match="There is no home folder for ~nosuch/x"):
        user_path("~nosuch/x")
