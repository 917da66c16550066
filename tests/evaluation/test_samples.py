"""The classifier that judges samples, and what is counted of its verdicts."""

import functools

import numpy as np
import pytest

from keras_capsule_poe.data import ImageData, ImageSet, load_images
from keras_capsule_poe.evaluation.baselines import BOLTZMANN, KINDS, VAE, BoltzmannBaseline
from keras_capsule_poe.evaluation.classifier import evaluation_classifier
from keras_capsule_poe.evaluation.samples import distances, purity, recognition, sample_metrics


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


class Pixels:
    """A model of no capsules, whose features are pixels."""

    upper_bounds, modes, capsules, dim, own_parameters = (), {}, 1, 2, 500

    def to_features(self, images):
        return images

    from_features = to_features


@pytest.mark.long
def test_trained_controls_are_judged(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.evaluation.classifier.EPOCHS", 1)
    quick = functools.partial(BoltzmannBaseline, epochs=1, gibbs_steps=2)
    monkeypatch.setattr("keras_capsule_poe.evaluation.baselines.BoltzmannBaseline", quick)
    pixels = np.random.default_rng(0).integers(256, size=(40, 8, 8, 1)).astype("uint8")
    data = ImageData(*[ImageSet(pixels, np.arange(40) % 2)] * 2)
    options = {"cache": tmp_path, "baselines": "trained", "vae_seconds": 0.05}
    found = sample_metrics(Pixels(), data, **options)
    kinds = [*KINDS, BOLTZMANN, VAE]
    assert list(found)[1:7] == ["real", *kinds]
    assert all(np.isfinite(found[kind]["frechet"]) for kind in kinds)
    assert found["vae_seconds"] >= 0.05 and found["vae_steps"] > 0
    assert abs(found["vae_parameters"] - Pixels.own_parameters) < 0.2 * Pixels.own_parameters


def test_recognition_counts():
    classes = np.array([[0.95, 0.05, 0], [0.5, 0.3, 0.2], [0, 0.92, 0.08], [0.05, 0.95, 0]])
    found = recognition(classes)
    mean = classes.mean(axis=0)
    assert found["recognised"] == 0.75 and found["classes"] == 2
    assert found["label_entropy"] == pytest.approx(-(mean * np.log(mean)).sum())


def test_columns():
    named = np.array([0, 0, 1, 1, 1, 1, 2, 2])
    capsule = np.array([4, 4, 4, 7, 7, 7, 9, 9])
    found = purity(np.eye(3)[named], capsule)
    assert found["purity"] == pytest.approx((2 / 3 + 1 + 1) / 3)
    assert found["modal_classes"] == 3


def test_distances_have_no_distance_between_the_same():
    features = np.random.default_rng(0).normal(size=(200, 8))
    found = distances(features, features)
    assert found["frechet"] == pytest.approx(0, abs=1e-9) and found["coverage"] == 1


def test_a_single_sample_has_no_distances():
    features = np.ones((1, 8))
    assert set(distances(features, features).values()) == {None}
