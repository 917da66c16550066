"""The figures of a model are those of its methods, called one by one."""

import numpy as np
import pytest

from keras_capsule_poe.data import ImageData
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.evaluation import evaluate, linear_probe, metrics
from keras_capsule_poe.evaluation.clusters import clustering_accuracy, kmeans_clusters
from keras_capsule_poe.evaluation.metrics import reconstruction_errors


def error(decoded, original):
    decoded, original = np.asarray(decoded, "float64"), np.asarray(original, "float64")
    return np.square(decoded - original).sum() / np.square(original).sum()


@pytest.mark.some(2)
def test_figures_are_those_of_the_methods(model, image_set):
    # More than one chunk of 250 test images, so that sums run over chunks.
    data = ImageData(image_set(30, 1), image_set(300, 2))
    found = evaluate(model, data, probe_images=20, seed=3)
    images = data.test.images.astype("float32") / 255
    expected = {name: error(*pair) for name, pair in model.reconstructions(images).items()}
    assert expected["whole_code"] == pytest.approx(error(model(images), images), rel=1e-5)
    # Graph and eager execution round float32 differently.
    assert found["reconstruction"] == pytest.approx(expected, rel=1e-4)
    energy = np.asarray(model.free_energy(images)["free_energy"]).mean()
    assert found["free_energy"]["test"] == pytest.approx(energy, rel=1e-4)
    chosen = np.random.default_rng(3).permutation(30)[:20]
    train = data.train.images[chosen].astype("float32") / 255
    # Clusters see what lies outside the frames.
    experts = [np.asarray(model.code(x)["experts"]).reshape(len(x), -1) for x in (train, images)]
    clusters = kmeans_clusters(*experts, 2, seed=3)[1]
    accuracy = clustering_accuracy(data.test.labels, clusters)
    assert found["clustering"]["kmeans"]["accuracy"] == pytest.approx(accuracy, abs=0.02)
    probed = [np.asarray(model.encode(x)["capsules"]).reshape(len(x), -1) for x in (train, images)]
    probe = linear_probe(probed[0], data.train.labels[chosen], probed[1], data.test.labels)
    assert found["probe"]["capsules"] == pytest.approx(probe, abs=0.01)
    energy = np.asarray(model.free_energy(train)["free_energy"]).mean()
    assert found["free_energy"]["train"] == pytest.approx(energy, rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("kept", [0, 7, 30, 40])
def test_what_is_decoded_is_kept_and_changes_no_error(model, image_set, kept):
    images = image_set(30, 2).images
    errors, decoded = reconstruction_errors(model, images, kept)
    expected, _ = reconstruction_errors(model, images)
    # The same sums, in two parts.
    assert errors == pytest.approx(expected, rel=1e-5)
    assert set(decoded) == (set(model.upper_bounds) if kept else set())
    for name, shown in decoded.items():
        found = model.reconstructions(to_pixels(images[:kept]))[name][0]
        np.testing.assert_allclose(shown, found, atol=1e-5)


def test_only_the_first_test_images_and_no_probe_without_labels(model, image_set):
    data = ImageData(image_set(30, 1, labels=False), image_set(40, 2, labels=False))
    found = evaluate(model, data, test_images=7)
    images = data.test.images[:7].astype("float32") / 255
    whole = error(model(images), images)
    assert found["reconstruction"]["whole_code"] == pytest.approx(whole, rel=1e-4)
    assert found["probe"] == found["clustering"] == {}


@pytest.mark.long
def test_what_is_in_memory_at_once_does_not_grow_with_the_images(model, image_set, monkeypatch):
    """A sample is a sample: the figures are those of a run that is asked for as many images."""
    data = ImageData(image_set(90, 1), image_set(80, 2))
    few = evaluate(model, ImageData(data.train, data.test.head(30)), probe_images=40)
    limits = {"PROBE_IMAGES": 40, "PROBE_SAMPLE": 35, "FEATURE_IMAGES": 25, "FEATURE_TESTED": 20}
    monkeypatch.setattr(metrics, "PROBE_IMAGES", 30)
    tested = evaluate(model, data, probe_images=40)
    assert tested["free_energy"] == few["free_energy"]
    assert tested["clustering"] == few["clustering"] and tested["probe"] == few["probe"]
    # What is streamed is of all images.
    assert tested["reconstruction"] == evaluate(model, data)["reconstruction"]
    asked = []

    def count(function, rows, **options):
        asked.append(len(rows))
        return map_batches(function, rows, **options)

    for name, value in limits.items():
        monkeypatch.setattr(metrics, name, value)
    monkeypatch.setattr(metrics, "map_batches", count)
    evaluate(model, data)
    # Codes of training and test, with features, and reconstructions of all.
    assert asked == [35, 40, 80]


@pytest.mark.long
@pytest.mark.parametrize("featured", [0, 270, 700])
def test_images_are_encoded_once_for_codes_and_features(model, image_set, featured):
    images = image_set(600, 1).images
    found = metrics._codes((model.featured_code, model.code), images, featured)
    features = found.pop("features", None)
    # Chunks are the same, and so is every bit.
    for name, rows in map_batches(model.code, images).items():
        np.testing.assert_array_equal(found.pop(name), rows)
    assert not found
    if featured:
        expected = map_batches(model.to_features, images[:featured])
        np.testing.assert_array_equal(features, expected)
    assert (features is None) == (featured == 0)


@pytest.mark.long
def test_features_are_those_of_the_images_that_are_probed(model, image_set, monkeypatch):
    """Rejected: features of other images, of more than there may be, of too few for baselines."""
    data = ImageData(image_set(90, 1), image_set(80, 2))
    monkeypatch.setattr(metrics, "FEATURE_IMAGES", 70)
    kept, few, probed = {}, {}, []

    def probe(*sets):
        probed.append([len(x) for x in sets])
        return linear_probe(*sets)

    monkeypatch.setattr(metrics, "linear_probe", probe)
    evaluate(model, data, seed=3, kept=kept)
    assert probed == [[90, 90, 80, 80]] * 2 + [[70, 70, 80, 80], [90, 90, 80, 80]]
    rows = np.random.default_rng(3).permutation(90)[:70]
    features = np.asarray(model.to_features(to_pixels(data.train.images[rows])))
    # Graph and eager execution round float32 differently.
    np.testing.assert_allclose(kept["features"], features, atol=1e-5)
    evaluate(model, data, probe_images=60, seed=3, kept=few)
    assert few == {}


def test_a_linear_probe_finds_a_plane_and_only_that():
    x = np.random.default_rng(0).normal(size=(400, 5))
    plane, circle = (x[:, 0] > 0.1).astype(int), (np.square(x[:, :2]).sum(axis=1) > 1.4).astype(int)
    assert linear_probe(x[:300], plane[:300], x[300:], plane[300:]) > 0.9
    assert linear_probe(x[:300], circle[:300], x[300:], circle[300:]) < 0.7
