"""Folders of images on the command line: classes by name, splits and lines about the data."""

import json

import numpy as np
import pytest
from PIL import Image

CLASSES = ("cat", "dog", "eel")
SMALL = "capsnet.filters=4 capsnet.types=2 capsnet.primary_dim=4 capsnet.dim=4".split()


def fill(root, n=8, classes=CLASSES):
    random = np.random.default_rng(0)
    for name in classes:
        (root / name).mkdir(parents=True)
        for i in range(n):
            pixels = random.integers(0, 256, (28, 28), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def trained(capspoe, tmp_path_factory):
    """Returns the folder of a capsule network of three classes, and what its training printed."""
    place = tmp_path_factory.mktemp("folders")
    fill(place / "images" / "Training", 20)
    fill(place / "images" / "Testing", 4)
    settings = [word for setting in SMALL for word in ("--set", setting)]
    result = capspoe(
        "train", "--model", "capsnet", "--dataset", place / "images", "--model-dir", place / "m",
        "--epochs", 1, "--set", "capsnet.decoder=dense", *settings,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return place / "m", result.output


def test_classes_and_their_images_are_shown_before_training(trained):
    _, output = trained
    line = "training/held-out/test images of 3 classes: cat 19/1/4, dog 19/1/4, eel 19/1/4"
    assert line in output
    assert output.index(line) < output.index("] capsnet")


def test_the_network_has_the_classes_of_the_images_and_their_names(trained):
    folder, _ = trained
    run = json.loads((folder / "run.json").read_text())
    assert run["class_names"] == list(CLASSES) and run["config"]["capsnet"]["classes"] == 3
    card = json.loads((folder / "1" / "model_card.json").read_text())
    assert card["class_names"] == list(CLASSES) and card["capsules"][0] == 3


def test_info_shows_the_classes(trained, capspoe):
    folder, _ = trained
    assert "classes: cat, dog, eel" in capspoe("info", "--model-dir", folder).output


def test_images_are_named_by_their_classes(trained, capspoe, tmp_path):
    folder, _ = trained
    result = capspoe("reconstruct", "--model-dir", folder, "--n", 3, "--out", tmp_path / "r.png")
    assert result.exit_code == 0, result.output
    labels, named = result.output.splitlines()[-2:]
    assert labels.startswith("labels") and set(labels.split()[1:]) <= set(CLASSES)
    assert named.startswith("named") and set(named.split()[1:]) <= set(CLASSES)


def test_a_run_goes_on_with_the_classes_that_it_has(trained, capspoe):
    folder, _ = trained
    images = folder.parent / "images"
    command = ["train", "--model", "capsnet", "--dataset", images, "--model-dir", folder]
    for setting in ("capsnet.decoder=dense", *SMALL):
        command += ["--set", setting]
    again = capspoe(*command, "--epochs", 1)
    assert again.exit_code == 0, again.output
    other = capspoe(*command, "--epochs", 1, "--classes", 4)
    assert other.exit_code == 1 and "capsnet.classes: 3 -> 4" in other.output


def test_a_dry_run_shows_them_too(capspoe, tmp_path):
    fill(tmp_path / "a", 3)
    (tmp_path / "a" / "notes.txt").touch()
    command = ("train", "--model", "rbm", "--dataset", tmp_path / "a", "--dry-run")
    result = capspoe(*command, "--model-dir", tmp_path / "m")
    assert result.exit_code == 0, result.output
    assert "images of 3 classes: cat" in result.output
    assert "Left out: 1 file of other kinds (1 .txt)." in result.output


def test_a_classifier_names_the_image_without_a_class(capspoe, tmp_path):
    fill(tmp_path / "a", 3)
    loose = tmp_path / "a" / "logo.png"
    Image.fromarray(np.eye(28, dtype="uint8")).save(loose)
    command = ("train", "--model", "capsnet", "--dataset", tmp_path / "a")
    result = capspoe(*command, "--model-dir", tmp_path / "m")
    assert result.exit_code == 2 and f"{loose} is in no class folder" in result.output
    assert not (tmp_path / "m").exists()


def test_folders_that_may_be_splits_ask_for_flags_that_work(capspoe, tmp_path):
    for name in ("one", "two"):
        fill(tmp_path / "a" / name, 3)
    command = ("train", "--model", "rbm", "--dry-run", "--model-dir", tmp_path / "m")
    result = capspoe(*command, "--dataset", tmp_path / "a")
    assert result.exit_code == 2
    assert "Name the folders with --train-dir and --test-dir." in result.output
    named = ("--train-dir", tmp_path / "a" / "one", "--test-dir", tmp_path / "a" / "two")
    result = capspoe(*command, *named)
    assert result.exit_code == 0, result.output
    assert "8 training, 1 held-out and 9 test images" in result.output


def test_large_images_get_a_line_before_they_take_hours(capspoe, tmp_path):
    for i in range(4):
        pixels = np.random.default_rng(i).integers(0, 256, (256, 256), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    command = ("train", "--model", "rbm", "--dry-run", "--dataset", tmp_path)
    result = capspoe(*command, "--model-dir", tmp_path / "m")
    assert "Images of 256x256 pixels train about 84 times as long" in result.output
