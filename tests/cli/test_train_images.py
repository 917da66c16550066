"""Images that `capspoe train` takes: folders with classes by name, and what it refuses."""

import json

import numpy as np
import pytest
from PIL import Image

CLASSES = ("cat", "dog", "eel")
SMALL = "capsnet.filters=4 capsnet.types=2 capsnet.primary_dim=4 capsnet.dim=4".split()


def picture(path, shape=(28, 28), seed=0):
    random = np.random.default_rng(seed)
    Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8)).save(path)


def fill(root, n=8, classes=CLASSES):
    for k, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(n):
            picture(root / name / f"{i}.png", seed=1000 * k + i)
    return root


@pytest.fixture(scope="module")
def network(asked, tmp_path_factory):
    """Returns the command and the folder of a network of three classes, and what is shown."""
    place = tmp_path_factory.mktemp("folders")
    fill(place / "images" / "Training", 20)
    fill(place / "images" / "Testing", 4)
    settings = ["--set", "capsnet.decoder=dense"]
    settings += [word for setting in SMALL for word in ("--set", setting)]
    images = ("--dataset", place / "images", "--model-dir", place / "m")
    command = ("train", "--model", "capsnet", *images, "--epochs", 1, *settings)
    return command, place / "m", asked(*command)


def test_classes_are_shown_and_kept(network, asked, tmp_path):
    _, folder, shown = network
    # Counts of balanced classes say nothing.
    assert "[1/2] capsnet" in shown and "cat 19/1/4" not in shown
    run = json.loads((folder / "run.json").read_text())
    assert run["class_names"] == list(CLASSES) and run["config"]["capsnet"]["classes"] == 3
    card = json.loads((folder / "1" / "model_card.json").read_text())
    assert card["class_names"] == list(CLASSES) and card["capsules"][0] == 3
    assert "classes: cat, dog, eel" in asked("info", "--model-dir", folder)
    options = ("--n", 3, "--out", tmp_path / "r.png")
    labels, named = asked("reconstruct", "--model-dir", folder, *options).splitlines()[-2:]
    assert labels.startswith("labels") and set(labels.split()[1:]) <= set(CLASSES)
    assert named.startswith("named") and set(named.split()[1:]) <= set(CLASSES)


def test_a_run_goes_on_with_the_classes_that_it_has(network, asked):
    command, *_ = network
    asked(*command)
    assert "capsnet.classes: 3 -> 4" in asked(*command, "--classes", 4, code=1)


def test_a_dry_run_says_what_it_finds(asked, tmp_path):
    plan = ("train", "--model", "rbm", "--dry-run", "--model-dir", tmp_path / "m")
    fill(tmp_path / "a", 3)
    (tmp_path / "a" / "notes.txt").touch()
    (tmp_path / "a" / "cat" / "torn.png").write_bytes(b"no image")
    shown = asked(*plan, "--dataset", tmp_path / "a", "--skip-broken")
    assert "images of 3 classes: cat" in shown
    assert "Left out: 1 file of other kinds (1 .txt)." in shown
    assert "1 unreadable file left out" in shown
    (tmp_path / "b").mkdir()
    for i in range(4):
        picture(tmp_path / "b" / f"{i}.png", (256, 256), i)
    shown = asked(*plan, "--dataset", tmp_path / "b")
    assert "Images of 256x256 pixels train about 84 times as long" in shown


def test_folders_that_may_be_splits_ask_for_flags_that_work(asked, tmp_path):
    for name in ("one", "two"):
        fill(tmp_path / "a" / name, 3)
    plan = ("train", "--model", "rbm", "--dry-run", "--model-dir", tmp_path / "m")
    shown = asked(*plan, "--dataset", tmp_path / "a", code=2)
    assert "Name the folders with --train-dir and --test-dir." in shown
    named = ("--train-dir", tmp_path / "a" / "one", "--test-dir", tmp_path / "a" / "two")
    assert "8 training, 1 held-out and 9 test images" in asked(*plan, *named)


@pytest.fixture
def refused(asked, tmp_path):
    """Trains on a data set, and asks for a refusal in one line that holds some words."""

    def refused(dataset, *words, arguments=()):
        command = ("train", "--dataset", dataset, "--model-dir", tmp_path / "m", *arguments)
        line = asked(*command, code=2, last=words).strip().splitlines()[-1]
        assert not (tmp_path / "m").exists()
        return line

    return refused


def test_images_that_cannot_be_used(refused, tmp_path, tiny):
    empty, path = tmp_path / "empty", tmp_path / "images.npz"
    empty.mkdir()
    refused(empty, "empty")
    np.savez(path, images=np.full((4, 28, 28), np.nan, "float32"))
    refused(path, "NaN")
    # Equal images are refused before anything is trained.
    for n in (3, 40):
        np.savez(path, images=np.full((n, 28, 28), 7, "uint8"))
        refused(path, "from 7 to 7", arguments=tiny)
    path.write_text("hi")
    line = refused(path, "damaged or of another kind", arguments=("--dry-run",))
    assert "pickled" not in line


def test_a_classifier_needs_labels_also_for_a_plan(refused, tmp_path):
    path, loose = tmp_path / "unlabelled.npz", tmp_path / "a" / "logo.png"
    np.savez(path, images=np.zeros((50, 28, 28), "uint8"))
    for model in ("capsnet", "matrix-capsules"):
        words = "A classifier needs images with labels"
        refused(path, words, arguments=("--model", model, "--dry-run"))
    fill(tmp_path / "a", 3)
    picture(loose)
    refused(tmp_path / "a", f"{loose} is in no class folder", arguments=("--model", "capsnet"))


def test_a_classifier_names_the_file_of_labels(refused, tmp_path):
    (tmp_path / "a").mkdir()
    for i in range(3):
        picture(tmp_path / "a" / f"{i}.png", seed=i)
    table = tmp_path / "a" / "labels.csv"
    table.write_text("filename,label\n0.png,cat\n1.png,dog\n2.png,dog\n")
    words = (f"{table} has labels", f"with --labels {table}")
    refused(tmp_path / "a", *words, arguments=("--model", "capsnet"))
    refused(tmp_path / "a", "--label-column", arguments=("--labels", table, "--label-column", "x"))


def test_the_flag_that_mends_them_is_named(refused, tmp_path):
    path = tmp_path / "images.npz"
    np.savez(path, a=np.zeros((4, 28, 28), "uint8"), b=np.zeros((4, 28, 28), "uint8"))
    refused(path, "arrays a, b", "with --column")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(b"no image")
    refused(folder, "is broken or no image", "with --skip-broken")
    refused("digits", "`data_dir`", "Omit --data-dir", arguments=("--data-dir", tmp_path))
    refused("digits", "9999", "image_size", arguments=("--image-size", "9" * 400))


def test_data_that_cannot_be_had_name_ways_out(refused, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_capsule_poe.data.tfds.is_online", lambda: False)
    ways = ("TFDS_DATA_DIR", "--data-dir", "--manual-dir", "--dataset digits")
    refused("mnist", *ways, arguments=("--data-dir", tmp_path))
