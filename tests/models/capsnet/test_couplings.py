"""A capsule network that routes, through the commands: its couplings, and models that vote.

Rejected: couplings of another image; a member that votes twice; a figure of changes that the
history does not have.
"""

import json
import shutil

import keras
import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe import CapsNet, registry
from keras_capsule_poe.data import load_images
from keras_capsule_poe.data.mapping import to_pixels

pytestmark = pytest.mark.long
LIMIT = 40


@pytest.fixture(scope="module")
def folder(capspoe, tmp_path_factory):
    """Folder of a tiny network with two updates of its couplings, without a decoder."""
    path = tmp_path_factory.mktemp("models") / "digits-capsnet"
    settings = ("filters=4", "types=2", "decoder=none", "augmentation=none")
    settings = [part for each in settings for part in ("--set", f"capsnet.{each}")]
    settings += ["--set", "compute.precision=float32"]
    done = capspoe("train", "--model", "capsnet", "--recipe", "small", "--dataset", "digits",
                   "--limit", 100, "--epochs", 1, *settings, "--model-dir", path)  # fmt: skip
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture(scope="module")
def twin(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "twin"
    shutil.copytree(folder, path)
    return path


@pytest.fixture(scope="module")
def model(folder):
    return keras.models.load_model(folder / "model.keras", compile=False)


def test_changes_of_the_logits_are_in_the_history(folder, model):
    (last,) = json.loads((folder / "capsnet" / "history.json").read_text())
    held_out = load_images("digits", limit=100).hold_out(None).held_out.images
    changes = np.mean(model.coupling_changes(to_pixels(held_out)), axis=0)
    # The same float32 operations, in a graph.
    found = [last["logit_change_1"], last["logit_change_2"]]
    np.testing.assert_allclose(found, changes, rtol=1e-4)


def test_couplings_are_drawn(done, model, tmp_path):
    path = tmp_path / "couplings.png"
    shown = done("traverse", "--couplings", "--image", 2, "--image", 5, "--out", path)
    test = load_images("digits", limit=100).test
    lines = [line for line in shown.splitlines() if line.startswith("image ")]
    for line, image in zip(lines, (2, 5), strict=True):
        pixels = to_pixels(test.images[image : image + 1])
        longest = int(model.classify(pixels)["classes"][0])
        assert line.startswith(f"image {image}, label {test.labels[image]}: mean coupling to "
                               f"capsule {longest} by iteration")  # fmt: skip
        means = np.asarray(model.couplings(pixels))[0, :, :, longest].mean(axis=1)
        found = [float(word) for word in line.split()[-3:]]
        # Three digits are shown.
        np.testing.assert_allclose(found, means, atol=6e-4)
    with Image.open(path) as image:
        assert image.width > 800 and image.height > 400
    assert "mean coupling to capsule 7" in done(
        "traverse", "--couplings", "--capsule", 7, "--out", path
    )


def test_steps_of_routing_are_couplings_at_places_and_end_with_the_classes(model):
    x = to_pixels(load_images("digits", limit=100).test.images[:3])
    steps = {name: np.asarray(value) for name, value in model.routing_steps(x).items()}
    height, width = model.routing_places
    pairs = np.asarray(model.couplings(x))
    shape = (*pairs.shape[:2], height, width, -1, pairs.shape[-1])
    wanted = pairs.reshape(shape).mean(axis=4)
    np.testing.assert_allclose(steps["coefficients"], wanted, rtol=1e-4, atol=1e-6)
    p = np.asarray(model.classify(x)["probabilities"])
    np.testing.assert_allclose(steps["probabilities"][:, -1], p, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--couplings", "--steps", "5"), "--steps has no effect with --couplings."),
        (("--couplings", "--rows", "5"), "--rows has no effect with --couplings."),
        (
            ("--couplings", "--capsule", "10"),
            "`capsule` must be an index of 10 capsules, from 0. Received: capsule=10",
        ),
        (("--couplings", "--image", "1", "--image", "297"), "test images. Received: 297"),
        (("--image", "1", "--image", "2"), "Several --image need --couplings."),
    ],
)
def test_bad_use_of_traverse_is_one_line(done, tmp_path, arguments, message):
    said = done("traverse", *arguments, "--out", tmp_path / "a.png", code=2)
    assert message in said.splitlines()[-1]
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    "recipe, settings", [("efficient", {}), ("small", {"routing_iterations": 1})]
)
def test_models_without_iterations_have_no_couplings(done, monkeypatch, recipe, settings):
    found = registry.settings("capsnet", recipe, decoder="none", **settings)
    model = CapsNet.of_shape(found, (28, 28, 1))
    monkeypatch.setattr("keras_capsule_poe.cli.options.load_model", lambda folder: model)
    said = done("traverse", "--couplings", code=1)
    assert "has no routing iterations to show" in said.splitlines()[-1]
    assert "uniform or computed in one pass. It is a Capsule network." in said


def test_models_vote(capspoe, done, folder, twin, model, tmp_path):
    page, path = tmp_path / "page.html", tmp_path / "figures.json"
    both = tmp_path / "compared.json"
    shown = capspoe("compare", folder, twin, "--json", both, "--limit", LIMIT)
    assert shown.exit_code == 0, shown.output
    compared = json.loads(both.read_text())
    done("evaluate", "--json", path, "--limit", LIMIT)
    figures = json.loads(path.read_text())
    done("report", "--metrics", path, "--out", page, "--limit", LIMIT)
    # Two that are the same are together what each is alone.
    found = compared["models"]
    assert list(found) == [folder.name, twin.name, "ensemble"]
    assert found[folder.name] == found["ensemble"] == figures["accuracy"]
    assert compared["mcnemar"]["ensemble"]["p"] == 1
    assert str(twin) in shown.output
    assert "Reliability" in page.read_text()
    test = load_images("digits", limit=100).test.head(LIMIT)
    changes = np.mean(model.coupling_changes(to_pixels(test.images)), axis=0)
    assert list(figures["logit_changes"].values()) == pytest.approx(changes.tolist(), rel=1e-4)
    lengths = np.asarray(model.classify(to_pixels(test.images))["probabilities"])
    confidence = figures["calibration"]["length"]["confidence"]
    assert confidence == pytest.approx(lengths.max(axis=1).mean(), rel=1e-4)
