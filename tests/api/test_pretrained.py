"""Models that come with the package, and those behind a URL.

Rejected: weights whose rounding costs quality; weights in the file that are not those of
the card; a file behind a URL that is another one.
"""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe.errors import BadUse, RunFailed
from keras_capsule_poe.pretrained import pretrained_folder
from keras_capsule_poe.training import RunFolder

NAMES = ["fashion_mnist", "mnist"]
# Largest difference from the full model that counts as equal.
MARGIN = 0.03


@pytest.fixture(scope="module")
def mnist():
    return kcp.load("mnist")


def test_they_are_small_enough_for_git():
    assert kcp.pretrained_names() == NAMES
    place = pretrained_folder("mnist").parent
    assert sum(file.stat().st_size for file in place.rglob("*")) < 18.5e6


@pytest.mark.parametrize("name", NAMES)
def test_rounding_costs_little(name):
    metrics = json.loads((pretrained_folder(name) / "metrics.json").read_text())
    for domain in ("prior", "posterior"):
        found, full = (metrics[key]["samples"][domain] for key in ("rounded", "full"))
        for metric in ("confident", "coverage", "purity"):
            assert found[metric] > full[metric] - MARGIN, (domain, metric)


@pytest.mark.parametrize("name", NAMES)
def test_its_card_has_the_metrics_and_the_origin(name):
    folder = pretrained_folder(name)
    metrics = json.loads((folder / "metrics.json").read_text())
    text = (folder / "README.md").read_text()
    for word in ("Licence", "seed, 0", "commit", "benchmarks/pretrain.py"):
        assert word in text
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if "| pretrained" in line]
    for row, domain in zip(rows, ("prior", "posterior"), strict=True):
        found = metrics["rounded"]["samples"][domain]
        names = ("confident", "FID", "precision", "recall", "coverage", "purity")
        assert row[2:] == [f"{found[name]:.3g}" for name in names]


def test_it_draws_digits_and_is_float32(mnist):
    samples = mnist.sample(40, seed=0, domain="posterior")
    assert samples.images.shape == (40, 28, 28, 1) and mnist.weights[0].dtype == "float32"
    # Ink on black: images are neither empty nor grey.
    assert 0.05 < samples.images.mean() < 0.25 and samples.images.max() > 0.9


def test_commands_take_its_name(capspoe, mnist, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = capspoe("sample", "--model", "mnist", "--out", "s.npz", "--n", 3, "--seed", 5)
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "s.npz") as arrays:
        np.testing.assert_allclose(arrays["images"], mnist.sample(3, seed=5).images, atol=1e-6)
    shown = capspoe("info", "--model", "mnist").output
    assert "data set mnist, seed 0" in shown
    RunFolder(pretrained_folder("mnist")).check("export")


def test_a_folder_of_that_name_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mnist").mkdir()
    with pytest.raises(BadUse, match=r"there is no file mnist.model.keras"):
        kcp.load("./mnist")
    with pytest.raises(BadUse, match="must be one of 'fashion_mnist', 'mnist', a model folder"):
        kcp.load("cifar10")


def test_a_model_behind_a_url_is_checked(mnist, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    file = pretrained_folder("mnist") / "model.keras"
    right = hashlib.sha256(file.read_bytes()).hexdigest()
    loaded = kcp.load(file.as_uri(), sha256=right)
    np.testing.assert_array_equal(loaded.get_weights()[0], mnist.get_weights()[0])
    with pytest.raises(RunFailed, match="Cannot download"):
        kcp.load(file.as_uri(), sha256="0" * 64)
    for sum_ in (None, "12", 5):
        with pytest.raises(BadUse, match=re.escape(f"for a URL. Received: {sum_!r}")):
            kcp.load(file.as_uri(), sha256=sum_)
