"""Trained models for commands: what cannot be loaded, and files that are not written over."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.cli import options
from keras_capsule_poe.cli.options import first_images
from keras_capsule_poe.data import load_images
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.records import remove_record, write_record


def change(folder, **values):
    """Changes settings in `run.json`, as if they had been trained; None removes one."""
    saved = json.loads((folder / "run.json").read_text())
    del saved["digest"]
    saved["config"].update(values)
    for key in [key for key, value in values.items() if value is None]:
        del saved["config"][key]
    (folder / "run.json").write_text(json.dumps(saved))


def test_a_command_names_its_model(asked, tiny_model, tmp_path):
    shown = asked("sample", "--model-dir", tiny_model, "--out", tmp_path / "a.npz")
    assert f"Model: {tiny_model}" in shown


def test_commands_without_a_model_say_how_to_train(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked("sample", code=1, last="capspoe train")
    asked("info", "--model-dir", "nowhere", code=1, last="nowhere")


@pytest.mark.parametrize("command", ["sample", "evaluate", "info", "explore", "export"])
def test_a_name_that_is_none_is_answered_with_those_that_exist(asked, command):
    words = ("Did you mean `fashion_mnist`?", "Pretrained models are fashion_mnist, mnist.")
    asked(command, "--model-dir", "fashion-mnist", code=1, last=words)


def test_the_newest_model_may_be_one_of_a_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The last one is an export, and no run.
    names = "old", "sweep/dim=4,seed=0", "old/keras"
    for age, name in enumerate(names):
        folder = tmp_path / "saved_models" / name
        folder.mkdir(parents=True)
        (folder / "model.keras").touch()
        os.utime(folder / "model.keras", (age, age))
        if name != names[-1]:
            write_record(folder / "run.json", {})
    assert options.find_folder(None) == Path("saved_models/sweep/dim=4,seed=0")


def test_damaged_and_older_models_are_named(asked, copied, tmp_path):
    sample = ("sample", "--model-dir", copied, "--out", tmp_path / "a.png")
    whole = (copied / "model.keras").read_bytes()
    (copied / "model.keras").write_bytes(whole[:1000])
    asked(*sample, code=1, last=("model.keras", "--stage export --fresh"))
    (copied / "model.keras").write_bytes(whole)
    change(copied, model=None)
    asked(*sample, code=1, last=("older version", "SavedModel still works"))
    remove_record(copied / "decoder" / "done.json")
    (copied / "model.keras").unlink()
    asked(*sample, code=1, last=("has not finished", "same capspoe train to resume"))
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize("key, value", [(None, None), ("model", ["a"]), ("preset", {})])
def test_a_run_json_of_something_else_is_no_model(asked, copied, tmp_path, key, value):
    saved = json.loads((copied / "run.json").read_text())
    config = {**saved["config"], key: value} if key else {}
    del saved["digest"]
    (copied / "run.json").write_text(json.dumps({**saved, "config": config}))
    picture = ("--out", tmp_path / "a.png")
    commands = (("info",), ("sample", *picture), ("reconstruct", *picture))
    # The hidden copy still describes it.
    for command in commands:
        asked(*command, "--model-dir", copied)
    (copied / ".run.json").unlink()
    for command in commands:
        words = ("run.json", "it holds something else")
        asked(*command, "--model-dir", copied, code=1, last=words)


def test_other_images_than_those_of_the_run_are_refused(asked, copied, tmp_path):
    change(copied, limit=95)
    picture = ("--out", tmp_path / "a.png")
    for command in (
        ("reconstruct", *picture),
        ("traverse", *picture),
        ("sample", "--mode", "chain", "--start", "data", *picture),
        ("evaluate", "--samples", 0),
    ):
        asked(*command, "--model-dir", copied, code=1, last="not those that")
    assert not (tmp_path / "a.png").exists()


def test_fewer_images_than_were_asked_for_are_told_of(capsys):
    images = load_images("digits", limit=20).test.head(5)
    assert len(first_images(images, 5)) == 5 and capsys.readouterr().out == ""
    assert len(first_images(images, 6)) == 5
    assert capsys.readouterr().out == "There are 5 test images, not 6.\n"


def test_results_are_not_written_over_files_of_a_run(asked, tiny_model, files, tmp_path):
    before = files(tiny_model)
    link = tmp_path / "link"
    link.symlink_to(tiny_model)
    for name in ("run.json", ".run.json", "export/done.json", "encoder/a.json", "model.keras"):
        for path in (tiny_model / name, link / name, tiny_model / "1" / ".." / name):
            command = ("evaluate", "--model-dir", tiny_model, "--json", path)
            asked(*command, code=1, last=("is a file of the run in", "choose another path"))
    assert files(tiny_model) == before
    # Pictures may lie in the model folder.
    out = tiny_model / "mine.png"
    asked("sample", "--model-dir", tiny_model, "--out", out, last="Wrote")
    out.unlink()


def test_outputs_that_cannot_be_written(asked, tiny_model, tmp_path):
    sample = ("sample", "--model-dir", tiny_model, "--out")
    asked(*sample, "grid.doc", code=2, last=(".png", "grid.doc"))
    (tmp_path / "file").touch()
    blocked = (f"{tmp_path / 'file'} is not a folder", "grid.png")
    asked(*sample, tmp_path / "file" / "grid.png", code=2, last=blocked)
    asked(*sample, tmp_path / ("n" * 300) / "grid.png", code=2, last="File name too long")


SMALL = ("--model", "rbm", "--set", "rbm.hidden=4", "--epochs", 1)


@pytest.fixture(scope="module")
def of_images(asked, tmp_path_factory):
    """Returns a folder of images and a model of it, trained inside the folder."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(30):
        pixels = np.random.default_rng(i).integers(0, 256, (12, 12), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    command = ("train", *SMALL, "--dataset", folder)
    model = folder / "saved_models" / "m"
    # The second time its own pictures are no images of the data set.
    for _ in range(2):
        asked(*command, "--model-dir", model, last="capspoe report")
    return folder, model


def test_pictures_do_not_become_images_of_the_data_set(of_images, asked, monkeypatch):
    folder, model = of_images
    monkeypatch.chdir(folder)
    asked("sample", "--model-dir", model, code=1, last="would become one of the images")
    assert not (folder / "grid.png").exists()
    asked("sample", "--model-dir", model, "--out", model / "grid.png", last="Wrote")
    asked("evaluate", "--model-dir", model)


def test_a_folder_that_is_called_as_the_data_set_is_no_data_set(
    asked, tiny_model, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    out = tmp_path / "digits" / "grid.png"
    asked("sample", "--model-dir", tiny_model, "--out", out, last="Wrote")


@pytest.mark.long
def test_the_archive_of_the_images_is_not_written_over(asked, tmp_path):
    path, model = tmp_path / "images.npz", ("--model-dir", tmp_path / "m")
    np.savez(path, images=np.random.default_rng(0).integers(0, 256, (30, 12, 12), dtype=np.uint8))
    before = path.read_bytes()
    asked("train", "--dataset", path, *SMALL, *model)
    words = ("is the data set of", "choose another path")
    asked("sample", *model, "--out", path, code=1, last=words)
    assert path.read_bytes() == before


@pytest.mark.long
def test_a_relative_data_set_is_found_from_any_folder(of_images, asked, tmp_path, monkeypatch):
    folder, _ = of_images
    model = ("--model-dir", tmp_path / "m")
    for place in (folder.parent, tmp_path, folder.parent):
        monkeypatch.chdir(place)
        if place == tmp_path:
            asked("reconstruct", *model, "--out", tmp_path / "r.png")
        else:
            asked("train", "--dataset", folder.name, *SMALL, *model)


def test_a_working_folder_that_is_gone_is_one_line(asked, tmp_path):
    here, gone = Path.cwd(), tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        words = "The working folder no longer exists"
        asked("train", "--dataset", "digits", code=2, last=words)
    finally:
        os.chdir(here)


def test_a_whole_file_that_cannot_be_loaded_is_not_to_blame(asked, tiny_model, monkeypatch):
    """Rejects the advice to train again what another version of Keras wrote."""

    def load(path):
        raise RunFailed(f"Cannot load {path} (it is of a later version).")

    monkeypatch.setattr("keras_capsule_poe.pretrained.load", load)
    said = asked("reconstruct", "--model-dir", tiny_model, code=1, last="of a later version")
    assert "--fresh" not in said
