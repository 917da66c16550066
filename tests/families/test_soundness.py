"""A run that ends in useless maps says so; sound figures make no complaint."""

import numpy as np

from keras_capsule_poe.data import load_images
from keras_capsule_poe.families import get
from keras_capsule_poe.families.capsule_poe.soundness import complaints
from keras_capsule_poe.training import Reporter, RunConfig, train

X = np.random.default_rng(0).normal(size=(50, 6, 4)) + 1


def test_the_bar_is_the_error_of_the_mean():
    """Rejects a bar of one: away from zero the mean does better than that."""
    mean = X.mean(axis=0)
    bar = np.sum((X - mean) ** 2) / np.sum(X**2)
    assert bar < 0.6
    assert not complaints(X, bar * 0.99) and complaints(X, bar * 1.01)
    assert complaints(X, float("nan"))


def test_saturated_experts_are_told():
    (line,) = complaints(X, 0.01, probability=0.99)
    assert "probability 0.99" in line


def test_a_run_tells(tmp_path):
    config = RunConfig(get("capsules"), dataset="digits")
    for name, value in {
        "autoencoder.filters": 8,
        "autoencoder.precision": "float32",
        "encoder.capsules": 4,
        "encoder.implementation": "plain",
        "decoder.implementation": "plain",
        "encoder.learning_rate": 100.0,
        **{f"{stage}.batch_size": 50 for stage in ("autoencoder", "encoder", "decoder")},
        "autoencoder.epochs": 1,
        "encoder.epochs": 2,
        "decoder.epochs": 1,
    }.items():
        config.set(name, value)
    lines = []
    reporter = Reporter(write=lines.append)
    train(config, tmp_path, lambda: load_images("digits", limit=100), reporter, stage="encoder")
    told = [line for line in lines if "may help" in line]
    assert told and all(line.startswith("encoder: it ") for line in told), lines
