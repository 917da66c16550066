"""Scores of images: the words of the results pages, the same numbers as `evaluate`, refusals."""

import numpy as np
import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe.data import ImageData, ImageSet
from keras_capsule_poe.errors import DataError
from keras_capsule_poe.evaluation import sample_metrics, score_images
from keras_capsule_poe.evaluation.scores import scores_of
from keras_capsule_poe.models.base.outputs import Samples

PIXELS = np.random.default_rng(0).integers(256, size=(40, 8, 8, 1)).astype("uint8")
LABELS = np.arange(40) % 2


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def data():
    return ImageData(ImageSet(PIXELS, LABELS), ImageSet(PIXELS[:30], LABELS[:30]))


class Turned:
    """Draws turned training images, twenty of each of two capsules."""

    upper_bounds, capsules, dim = (), 2, 4
    modes = {"single": type("Mode", (), {"domains": ("prior",)})}

    def sample(self, n, seed, mode, domain):
        images = PIXELS[:n, ::-1] / np.float32(255)
        return Samples(images, np.zeros((n, 2, 4)), np.arange(n) // 15)

    def to_features(self, images):
        return images

    def from_features(self, features):
        return features


def test_evaluate_has_the_same_row(data, cache):
    row = sample_metrics(Turned(), data, cache=cache, baselines="none")["prior"]
    drawn = Turned().sample(30, 0, None, None)
    found = score_images(drawn.images, data, drawn.index, cache=cache)
    assert {name: row[name] for name in found} == found
    assert score_images(drawn, data, cache=cache) == found
    words = "confident classes label_entropy FID KID KID_error precision recall density coverage"
    assert list(found) == [*words.split(), "purity", "class_coverage"]
    assert found["recognised"] == found["confident"] and found["frechet"] == found["FID"]
    assert found["FID"] > 0 and 0.5 <= found["purity"] <= 1


def test_without_capsules_there_is_no_purity_and_few_images_have_no_distance(data, cache):
    found = score_images(PIXELS[:3, ..., 0], data, cache=cache)
    assert "purity" not in found and found["FID"] is None and found["KID"] is None
    same = score_images(data.test, data, cache=cache)
    assert same["FID"] == pytest.approx(0, abs=1e-6) and same["recall"] == same["coverage"] == 1


def test_scores_are_those_of_features_and_probabilities():
    features = np.random.default_rng(1).normal(size=(2, 50, 6))
    classes = np.eye(5)[np.arange(50) % 5]
    found = scores_of((features[0], classes), features[1], np.arange(50) % 10)
    assert found["confident"] == found["purity"] == 1 and found["class_coverage"] == 5


@pytest.mark.parametrize(
    "given, words",
    [
        ({"images": PIXELS[:, :4]}, "`images` must have shape"),
        ({"images": PIXELS.astype("int64")}, "`images` must be uint8"),
        ({"images": PIXELS * 1.0}, r"`images` must be floats in \[0, 1\]"),
        ({"images": PIXELS[:0]}, "one image or more"),
        ({"images": "saved_models/digits"}, "`images` must be"),
        ({"capsule": LABELS[:3]}, "`capsule` must be 40 integers"),
        ({"capsule": LABELS / 2}, "`capsule` must be 40 integers"),
        ({"capsule": 1}, "`capsule` must be 40 integers"),
        ({"data": "digits"}, "`data` must be an `ImageData`"),
        ({"data": ImageData(ImageSet(PIXELS), ImageSet(PIXELS))}, "one label for each image"),
        ({"data": ImageData(*[ImageSet(PIXELS, 0 * LABELS)] * 2)}, "two classes or more"),
    ],
)  # fmt: skip
def test_other_arguments_are_refused_in_a_line(data, cache, given, words):
    with pytest.raises(DataError, match=words) as error:
        score_images(**{"images": PIXELS, "data": data, **given}, cache=cache)
    assert "\n" not in str(error.value)


def test_it_is_public():
    assert kcp.evaluation.score_images is score_images
