"""What cannot come to anything is refused before it takes minutes, in words that are true.

Rejected: figures that are found and cannot be written; a plan for what training refuses; a model
beside itself or one of another kind; a folder's old SavedModel as that of its new training.
"""

import numpy as np
import pytest

from keras_capsule_poe import families as registry
from keras_capsule_poe.cli.export import show_results
from keras_capsule_poe.cli.options import first_images
from keras_capsule_poe.data import load_images
from keras_capsule_poe.training import RunConfig, RunFolder


def line(result):
    assert result.exit_code == 2, result.output
    return result.output.strip().splitlines()[-1]


@pytest.fixture
def two(tmp_path):
    """Folders of a Boltzmann machine and of a capsule network, as far as they are asked for."""
    folders = []
    for name in ("rbm", "capsnet"):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        (folders[-1] / "model.keras").touch()
        config = RunConfig(registry.get(name))
        RunFolder(folders[-1]).save(config, None, "1")
    return folders


def test_what_is_given_twice_is_refused(capspoe, two):
    for mean in ((), ("--mean",)):
        found = line(capspoe("compare", two[0], two[0], *mean))
        assert found.endswith("rbm is given twice. Give different models.")
    assert line(capspoe("compare", two[0])).endswith("Received: one")


def test_fewer_images_than_were_asked_for_are_told_of(capsys):
    images = load_images("digits", limit=20).test.head(5)
    assert len(first_images(images, 5)) == 5 and capsys.readouterr().out == ""
    assert len(first_images(images, 6)) == 5
    assert capsys.readouterr().out == "There are 5 test images, not 6.\n"


def test_there_is_no_mean_of_models_of_two_kinds(capspoe, two):
    found = line(capspoe("compare", "--mean", *two))
    assert "holds a model of the family 'capsnet', the first one is of 'rbm'" in found


@pytest.mark.parametrize("command", ["evaluate", "likelihood"])
def test_a_file_that_cannot_be_written_is_refused_first(capspoe, tmp_path, command):
    file = tmp_path / "file"
    file.write_text("kept")
    found = line(capspoe(command, "--model-dir", tmp_path, "--json", file / "deep" / "e.json"))
    assert "--json" in found and f"{file} is not a folder" in found and file.read_text() == "kept"


def test_so_is_a_picture(capspoe, tmp_path):
    (tmp_path / "file").write_text("kept")
    found = line(capspoe("reconstruct", "--out", tmp_path / "file" / "r.png"))
    assert "--out" in found and "is not a folder" in found


@pytest.mark.parametrize("model", ["capsnet", "matrix-capsules"])
def test_a_plan_is_of_what_can_be_trained(capspoe, tmp_path, model):
    path = tmp_path / "unlabelled.npz"
    np.savez(path, images=np.zeros((50, 28, 28), "uint8"))
    found = line(capspoe("train", "--dataset", path, "--model", model, "--dry-run"))
    assert "A classifier needs images with labels" in found


@pytest.mark.parametrize(
    "text, words",
    [
        ('model = "capsnett"', "model must be one of capsules, neurons, rbm, capsnet"),
        ("model = 3", "Received: 3"),
        ('model = "capsnet"\nrecipe = "smal"', "recipe must be one of paper, "),
        ('recipe = ["small"]', "Received: ['small']"),
    ],
)
def test_names_in_a_file_that_mean_nothing(capspoe, tmp_path, text, words):
    path = tmp_path / "run.toml"
    path.write_text(text)
    found = line(capspoe("train", "--config", path))
    assert words in found and "--model" not in found and "--recipe" not in found


def test_text_is_no_pickle(capspoe, tmp_path):
    path = tmp_path / "hi.npz"
    path.write_text("hi")
    found = line(capspoe("train", "--dataset", path, "--model", "rbm", "--dry-run"))
    assert "damaged or of another kind (no archive)" in found and "pickled" not in found


def test_what_would_not_help_is_not_advised(capspoe):
    found = line(capspoe("train", "--dataset", "digits", "--held-out", 0, "--dry-run"))
    assert "held_out must be above zero" in found and "fewer" not in found


def test_an_old_saved_model_is_called_so(tmp_path, capsys):
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "saved_model.pb").touch()
    show_results(tmp_path, registry.get("rbm"))
    assert f"SavedModel of an earlier training: {tmp_path / '2'}" in capsys.readouterr().out


def test_half_a_saved_model_is_not_called_one(tmp_path, capsys):
    (tmp_path / "2").mkdir()
    show_results(tmp_path, registry.get("rbm"))
    shown = capsys.readouterr().out
    assert "saved_model.pb is missing" in shown and "SavedModel:" not in shown
