"""A run that ends in useless weights says so, then and later; sound figures make no complaint.

Rejected: a bar of one for errors of what does not lie around zero; complaints that are heard once
and kept nowhere; a bar of grey pixels for reconstructions of black and white ones; a batch added to
the metrics of the last; the last few images left out; a pipeline whose end waits for a thread.
"""

import json

import numpy as np
import pytest

from keras_capsule_poe import CapsuleEncoder, CapsulePoE, registry
from keras_capsule_poe.data import load_images
from keras_capsule_poe.training import Reporter, train
from keras_capsule_poe.training.sanity import (
    figures,
    no_better_than_commonest,
    off_or_saturated,
    one_winner,
    worse_than_clusters,
    worse_than_mean,
)

X = np.random.default_rng(0).normal(size=(50, 6, 4)) + 1
IMAGES = load_images("digits", limit=150)


def test_the_bar_is_the_error_of_the_mean():
    mean = X.mean(axis=0)
    bar = np.sum((X - mean) ** 2) / np.sum(X**2)
    assert bar < 0.6
    assert not worse_than_mean(X, bar * 1.09, mean) and worse_than_mean(X, bar * 1.11, mean)
    assert worse_than_mean(X, float("nan"), mean)
    black = np.zeros((3, 2))
    assert not worse_than_mean(black, 7.0, 0) and worse_than_mean(black, float("nan"), 0)


def test_a_single_image_is_not_compared_with_itself():
    assert not worse_than_mean(X[:1], 0.2, X.mean(axis=0))
    (line,) = worse_than_mean(X[:1], 0.99, X.mean(axis=0))
    assert "relative error 0.99 on only 1 held-out image, that of the mean is" in line


def test_groups_are_compared_with_clusters():
    """Rejected: a warning on groups that are the clusters; silence on random ones."""
    random = np.random.default_rng(0)
    centres = 5 * random.normal(size=(4, 3, 2))
    groups = random.integers(4, size=300)
    x = centres[groups] + random.normal(size=(300, 3, 2))
    train, held_out = (x[:200], groups[:200]), (x[200:], groups[200:])
    assert not worse_than_clusters(train, held_out, 4)
    shuffled = (x[200:], random.permutation(groups[200:]))
    (line,) = worse_than_clusters((x[:200], random.permutation(groups[:200])), shuffled, 4)
    assert "worse than k-means: as groups they explain 0% of the variance of features" in line
    # Too few images, or one group alone, say nothing.
    assert not worse_than_clusters((x[:200], np.zeros(200, int)), (x[:49], np.zeros(49, int)), 4)
    assert not worse_than_clusters((x[:200], np.zeros(200, int)), (x[200:], np.zeros(100, int)), 1)


def test_saturated_experts_are_told():
    (line,) = off_or_saturated(0.99)
    assert "on for every image: mean probability 0.99" in line
    (line,) = off_or_saturated(1e-4)
    assert "off for every image" in line
    assert not off_or_saturated(0.05)


def test_one_capsule_for_all_images():
    (line,) = one_winner([0.0, 0.996, 0.004])
    assert "one capsule wins 100% of the images" in line
    assert not one_winner([0.6, 0.4]) and not one_winner([1.0])


def test_centred_inputs_that_are_decoded_to_zero():
    centred = np.random.default_rng(0).normal(size=(50, 6))
    centred -= centred.mean(axis=0)
    assert worse_than_mean(centred, 0.99, 0) and not worse_than_mean(centred, 0.97, 0)


def test_several_labels_an_image_have_no_commonest():
    labels = np.repeat([0, 0, 1], 20)
    assert no_better_than_commonest(labels, 0.66)
    assert not no_better_than_commonest(labels, 0.67)
    assert not no_better_than_commonest(np.stack([labels, labels], axis=1), 0.0)
    assert not no_better_than_commonest(labels[:49], 0.0)


def reported(folder, settings, family="capsules", recipe=None, stage=None, images=IMAGES):
    config = registry.settings(family, recipe, dataset="digits", held_out=50)
    for name, value in settings.items():
        config.set(name, value)
    lines = []
    train(
        registry.untrained(config),
        folder,
        lambda: images,
        Reporter(write=lines.append),
        stage=stage,
    )
    return [line for line in lines if "Train longer" in line]


SMALL = {
    "autoencoder.filters": 8,
    "compute.precision": "float32",
    "encoder.capsules": 4,
    "compute.implementation": "reference",
    **{f"{stage}.batch_size": 50 for stage in ("autoencoder", "encoder", "decoder")},
    **{f"{stage}.epochs": 1 for stage in ("autoencoder", "decoder")},
}


@pytest.mark.long
@pytest.mark.parametrize("recipe", ["generation", "paper"])
def test_experts_that_came_undone(tmp_path, capspoe, recipe):
    settings = {**SMALL, "encoder.epochs": 2, "encoder.learning_rate": 1e4}
    found = reported(tmp_path, settings, recipe=recipe, stage="encoder")
    of_encoder = [line for line in found if line.startswith("encoder: ")]
    assert of_encoder, found
    # They are kept with the stage, and said again by a run that skips it, and by `info`.
    kept = json.loads((tmp_path / "encoder" / "done.json").read_text())["metrics"]["complaints"]
    assert [f"encoder: {line}" for line in kept] == of_encoder
    assert reported(tmp_path, settings, recipe=recipe, stage="encoder") == found
    shown = capspoe("info", "--model-dir", tmp_path)
    assert all(line in shown.output.splitlines() for line in of_encoder), shown.output


@pytest.mark.long
def test_numbers_that_were_given_are_named_beside_the_learning_rate(tmp_path):
    settings = {**MACHINE, "rbm.epochs": 1, "rbm.learning_rate": 1000.0, "rbm.weight_decay": 1e-4}
    (line,) = reported(tmp_path, settings, family="rbm")
    assert line.endswith("rate of the rbm, or other values than rbm.weight_decay=0.0001")


def test_only_what_a_stage_depends_on_is_named():
    config = registry.settings("capsules")
    config.set("primary.target_length", 0.3)
    config.set("encoder.weight_decay", 0.002)
    config.set("encoder.capsules", 4)
    assert config.numbers_given("autoencoder") == ""
    assert (
        config.numbers_given("encoder") == "encoder.weight_decay=0.002, primary.target_length=0.3"
    )


MACHINE = {
    "rbm.hidden": 10,
    "rbm.binarize": "stochastic",
    "rbm.batch_size": 20,
    "rbm.persistent_chains": 20,
}


@pytest.mark.parametrize(
    "rate, complains", [pytest.param(0.05, False, marks=pytest.mark.long), (1000.0, True)]
)
def test_a_machine_that_came_undone(tmp_path, rate, complains):
    settings = {**MACHINE, "rbm.epochs": 20, "rbm.learning_rate": rate}
    small = load_images("digits", limit=150, image_size=(8, 8))
    found = reported(tmp_path, settings, "rbm", stage="rbm", images=small)
    assert [line.split(":")[0] for line in found] == (["rbm"] if complains else [])


@pytest.mark.parametrize(
    "rate, complains", [pytest.param(1e-3, False, marks=pytest.mark.long), (10.0, True)]
)
def test_a_classifier_that_came_undone(tmp_path, rate, complains):
    settings = {
        "capsnet.filters": 4,
        "capsnet.types": 2,
        "capsnet.routing_iterations": 1,
        "capsnet.decoder": "none",
        "compute.precision": "float32",
        "capsnet.epochs": 20,
        "capsnet.batch_size": 20,
        "capsnet.learning_rate": rate,
    }
    found = reported(tmp_path, settings, "capsnet", "small", stage="capsnet")
    assert [line.split(":")[0] for line in found] == (["capsnet"] if complains else [])


@pytest.mark.some(2)
@pytest.mark.parametrize("at_once", [7, 3])
def test_they_are_those_of_evaluate(at_once):
    random = np.random.default_rng(0)
    experts = CapsulePoE(3, 2, implementation="reference", routing_iterations=2)
    model = CapsuleEncoder(experts)
    model.build((None, 6, 4))
    model.compile("sgd")
    x = random.uniform(-0.3, 0.3, size=(2, 7, 6, 4)).astype("float32")

    def found(inputs):
        # Older Keras gives arrays.
        return {name: float(value) for name, value in figures(model, inputs, at_once).items()}

    for inputs in x:
        expected = model.evaluate(inputs, batch_size=at_once, verbose=0, return_dict=True)
        assert {name: float(value) for name, value in expected.items()} == pytest.approx(
            found(inputs), rel=1e-6
        )
    assert found(x[1]) != pytest.approx(found(x[0]), rel=1e-3)


def test_their_pipeline_is_tuned_by_nothing():
    class Model:
        def evaluate(self, stream, **options):
            assert stream.options().autotune.enabled is False
            return {"batches": len(list(stream)), **options}

    assert figures(Model(), np.zeros((7, 2)), 3)["batches"] == 3
