"""Metrics of generative models, against those of the model's methods called one by one."""

import functools

import numpy as np
import pytest

from keras_capsule_poe.data import ImageData, ImageSet
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.evaluation import evaluate, generative, linear_probe
from keras_capsule_poe.evaluation.baselines import (
    BOLTZMANN,
    KINDS,
    VAE,
    BoltzmannBaseline,
    baseline_set,
)
from keras_capsule_poe.evaluation.feature_metrics import clustering_accuracy, kmeans_clusters
from keras_capsule_poe.evaluation.generative import (
    area_under_curve,
    image_sources,
    nearest_to_training,
    negative_share,
    reconstruction_errors,
    sample_metrics,
    sign_metrics,
)
from keras_capsule_poe.evaluation.report import measure, tables
from keras_capsule_poe.evaluation.scores import has_classes, purity, recognition


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
def test_what_is_decoded_is_kept_and_changes_no_error(model, image_set):
    images = image_set(30, 2).images
    expected, none = reconstruction_errors(model, images)
    assert none == {}
    for kept in (7, 30, 40):
        errors, decoded = reconstruction_errors(model, images, kept)
        # The same sums, in two parts.
        assert errors == pytest.approx(expected, rel=1e-5)
        assert set(decoded) == set(model.upper_bounds)
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
    limits = {"PROBE_IMAGES": 35, "PROBE_TESTED": 40, "FEATURE_IMAGES": 25, "FEATURE_TESTED": 20}
    monkeypatch.setattr(generative, "PROBE_TESTED", 30)
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
        monkeypatch.setattr(generative, name, value)
    monkeypatch.setattr(generative, "map_batches", count)
    evaluate(model, data)
    # Codes of training and test, with features, and reconstructions of all.
    assert asked == [35, 40, 80]


@pytest.mark.long
def test_images_are_encoded_once_for_codes_and_features(model, image_set):
    images = image_set(600, 1).images
    codes = map_batches(model.code, images)
    for featured in (0, 270, 700):
        found = generative._codes((model.featured_code, model.code), images, featured)
        features = found.pop("features", None)
        assert list(found) == list(codes)
        # Chunks are the same, and so is every bit.
        for name, rows in codes.items():
            np.testing.assert_array_equal(found[name], rows)
        assert (features is None) == (featured == 0)
        if featured:
            expected = map_batches(model.to_features, images[:featured])
            np.testing.assert_array_equal(features, expected)


@pytest.mark.long
def test_features_are_those_of_the_images_that_are_probed(model, image_set, monkeypatch):
    """Rejected: features of other images, of more than there may be, of too few for baselines."""
    data = ImageData(image_set(90, 1), image_set(80, 2))
    monkeypatch.setattr(generative, "FEATURE_IMAGES", 70)
    kept, few, probed = {}, {}, []

    def probe(*sets):
        probed.append([len(x) for x in sets])
        return linear_probe(*sets)

    monkeypatch.setattr(generative, "linear_probe", probe)
    evaluate(model, data, seed=3, kept=kept)
    assert probed == [[90, 90, 80, 80]] * 2 + [[70, 70, 80, 80], [90, 90, 80, 80]]
    rows = np.random.default_rng(3).permutation(90)[:70]
    features = np.asarray(model.to_features(to_pixels(data.train.images[rows])))
    # Graph and eager execution round float32 differently.
    np.testing.assert_allclose(kept["features"], features, atol=1e-5)
    evaluate(model, data, probe_images=60, seed=3, kept=few)
    assert few == {}


def test_pairs_have_no_one_class():
    blank = np.zeros((4, 8, 8, 1), "uint8")
    single, pairs = (ImageSet(blank, labels) for labels in (np.arange(4), np.zeros((4, 2), int)))
    assert has_classes(ImageData(single, single))
    assert not has_classes(ImageData(pairs, pairs))
    assert not has_classes(ImageData(single, pairs))


def test_a_linear_probe_finds_a_plane_and_only_that():
    x = np.random.default_rng(0).normal(size=(400, 5))
    plane, circle = (x[:, 0] > 0.1).astype(int), (np.square(x[:, :2]).sum(axis=1) > 1.4).astype(int)
    assert linear_probe(x[:300], plane[:300], x[300:], plane[300:]) > 0.9
    assert linear_probe(x[:300], circle[:300], x[300:], circle[300:]) < 0.7


@pytest.mark.long
def test_without_a_bias_the_free_energy_tells_nothing(model, image_set):
    data = ImageData(image_set(40, 1), image_set(300, 2))
    found = sign_metrics(model, data, samples=20)
    assert found["energy_gap"] == 0 and found["auc"] == 0.5
    # Test images that are training images are themselves, whatever the model.
    same = ImageData(data.train, data.train)
    assert sign_metrics(model, same, samples=0) == {
        "energy_gap": 0, "auc": 0.5, "negatives_real": 0
    }  # fmt: skip
    assert list(found)[3:] == [
        f"negatives_{d}" for d in ("posterior", "half_space", "prior", "joint")
    ]


def test_with_a_bias_the_gap_is_that_of_the_free_energies(small_product, image_set):
    model = small_product(use_bias=True)
    data = ImageData(image_set(40, 1), image_set(60, 2))
    found = sign_metrics(model, data, samples=0)
    x = map_batches(model.to_visible, data.test.images[:2000])
    energies = [np.asarray(model.encoder.experts.free_energy(sign * x)) for sign in (1, -1)]
    # Graph and eager execution round float32 differently.
    assert found["energy_gap"] == pytest.approx(np.mean(energies[1] - energies[0]), abs=1e-4)
    assert abs(found["energy_gap"]) > 1e-3
    pairs = energies[0][:, None] < energies[1]
    assert found["auc"] == pytest.approx(pairs.mean(), abs=1e-3) and found["auc"] != 0.5


def test_the_area_under_the_curve_by_all_pairs():
    random = np.random.default_rng(0)
    low, high = random.integers(9, size=50), random.integers(2, 12, size=70)
    pairs = low[:, None], high[None]
    expected = np.mean(pairs[0] < pairs[1]) + np.mean(pairs[0] == pairs[1]) / 2
    assert area_under_curve(low, high) == pytest.approx(expected, abs=1e-15)
    assert area_under_curve(low, low) == 0.5
    assert area_under_curve(high, low) == pytest.approx(1 - expected, abs=1e-15)


def test_half_of_what_an_even_law_draws_is_negative():
    random = np.random.default_rng(0)
    training = random.normal(size=(50, 30)) + 2
    training /= np.linalg.norm(training, axis=1, keepdims=True)
    assert negative_share(training, training) == 0 and negative_share(-training, training) == 1
    mixed = np.concatenate([training, -training])
    assert negative_share(np.repeat(mixed, 10, axis=0), training) == 0.5


@pytest.mark.long
def test_the_figures_are_in_the_report(model, image_set):
    data = ImageData(image_set(40, 1, labels=False), image_set(30, 2, labels=False))
    found = measure(model, data, samples=10)
    (table,) = (table for table in tables(found) if table[0] == "Negative images")
    assert dict(table[3])["AUC"] == 0.5 and dict(table[3])["Energy gap"] == 0


@pytest.fixture
def data(image_set):
    return ImageData(image_set(80, 1), image_set(30, 2))


@pytest.mark.long
def test_each_source_is_what_it_says(model, data, monkeypatch):
    def sources(seed, **options):
        baselines = baseline_set("trained", model, seed)
        return image_sources(model, data, 30, 60, seed, baselines, **options)

    drawn = {name: draw() for name, draw in sources(seed=4).items()}
    test = data.test.images.astype("float32") / 255
    off = model.decode(model.code(test, coefficients="uniform")["capsules"])["images"]
    expected = {"autoencoder": model.autoencoder(test), "whole_code": model(test)}
    for name, images in {**expected, "routing_off": off}.items():
        np.testing.assert_allclose(drawn[name][0], images, atol=1e-5)
    assert list(drawn) == [
        "real", "autoencoder", "whole_code", "routing_off", "posterior", "half_space", "prior",
        "joint", "diagonal_gaussian", "full_gaussian", "gaussian_mixture", "boltzmann_machine",
    ]  # fmt: skip
    assert nearest_to_training(model) == ("posterior", "joint")
    real = {image.tobytes() for image in data.train.images}
    assert {image.tobytes() for image in drawn["real"][0]} <= real
    for name, (images, capsule) in drawn.items():
        assert images.shape[1:] == (20, 20, 1)
        assert len(images) == (30 if name in ("autoencoder", "whole_code", "routing_off") else 60)
        assert (capsule is None) == (name not in ("posterior", "half_space", "prior"))
    # Controls differ, and are drawn anew with another seed.
    names = ("diagonal_gaussian", "full_gaussian", "gaussian_mixture", "boltzmann_machine")
    assert len({drawn[name][0].tobytes() for name in names}) == 4
    other = sources(seed=5)["full_gaussian"]()[0]
    assert not np.array_equal(other, drawn["full_gaussian"][0])
    # Features that are known are not computed anew, and are the same.
    rows = np.random.default_rng(4).permutation(80)
    features = map_batches(model.to_features, data.train.images[rows])
    monkeypatch.setattr(type(model), "to_features", None)
    known = sources(seed=4, features=features)["full_gaussian"]()[0]
    np.testing.assert_array_equal(known, drawn["full_gaussian"][0])


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
    assert all(np.isfinite(found[kind]["FID"]) for kind in kinds)
    assert found["vae_seconds"] >= 0.05 and found["vae_steps"] > 0
    assert abs(found["vae_parameters"] - Pixels.own_parameters) < 0.2 * Pixels.own_parameters


def test_recognition_counts():
    classes = np.array([[0.95, 0.05, 0], [0.5, 0.3, 0.2], [0, 0.92, 0.08], [0.05, 0.95, 0]])
    found = recognition(classes)
    mean = classes.mean(axis=0)
    assert found["confident"] == 0.75 and found["classes"] == 2
    assert found["label_entropy"] == pytest.approx(-(mean * np.log(mean)).sum())


def test_columns():
    named = np.array([0, 0, 1, 1, 1, 1, 2, 2])
    capsule = np.array([4, 4, 4, 7, 7, 7, 9, 9])
    found = purity(np.eye(3)[named], capsule)
    assert found["purity"] == pytest.approx((2 / 3 + 1 + 1) / 3)
    assert found["class_coverage"] == 3
