"""What went wrong for users on the command line, each kind with its neighbours."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.errors import BadUse, ConfigError
from keras_capsule_poe.evaluation.classifier import _cache_path
from keras_capsule_poe.io import atomic
from keras_capsule_poe.io.atomic import atomic_write, user_path
from keras_capsule_poe.serving import export_saved_model, versions
from keras_capsule_poe.training import RunFolder

CAPSPOE = (sys.executable, "-c", "from keras_capsule_poe.cli.main import main; main()")


def said(result, code, *words):
    assert result.exit_code == code, result.output
    last = result.output.strip().splitlines()[-1]
    for word in words:
        assert word in last, result.output


@pytest.fixture
def files(tiny_model):
    """Returns the bytes of all files of the run, to compare them."""

    def files():
        paths = (path for path in tiny_model.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in paths}

    return files


@pytest.mark.parametrize(
    "name", ["run.json", ".run.json", "export/done.json", "encoder/a.json", "model.keras"]
)
def test_results_are_not_written_over_files_of_a_run(capspoe, tiny_model, files, name, tmp_path):
    before = files()
    link = tmp_path / "link"
    link.symlink_to(tiny_model)
    for path in (tiny_model / name, link / name, tiny_model / "1" / ".." / name):
        command = ("evaluate", "--model-dir", tiny_model, "--json", path)
        said(capspoe(*command), 1, "is a file of the run in", "choose another path")
    assert files() == before


def test_pictures_may_lie_in_the_model_folder(capspoe, tiny_model):
    out = tiny_model / "mine.png"
    said(capspoe("sample", "--model-dir", tiny_model, "--out", out), 0, "Wrote")
    out.unlink()


@pytest.fixture(scope="module")
def of_images(capspoe, tmp_path_factory):
    """Returns a folder of images and a model of it, trained inside the folder."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(30):
        pixels = np.random.default_rng(i).integers(0, 256, (12, 12), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    small = ("--set", "rbm.hidden=4", "--epochs", 1)
    command = ("train", "--model", "rbm", "--dataset", folder, *small)
    model = folder / "saved_models" / "m"
    said(capspoe(*command, "--model-dir", model), 0, "SavedModel")
    # Its own pictures are no images of the data set.
    said(capspoe(*command, "--model-dir", model), 0, "SavedModel")
    return folder, model


def test_pictures_do_not_become_images_of_the_data_set(of_images, capspoe, monkeypatch):
    folder, model = of_images
    monkeypatch.chdir(folder)
    said(capspoe("sample", "--model-dir", model), 1, "would become one of the images")
    assert not (folder / "grid.png").exists()
    said(capspoe("sample", "--model-dir", model, "--out", model / "grid.png"), 0, "Wrote")
    said(capspoe("evaluate", "--model-dir", model), 0)


def test_a_folder_that_is_called_as_the_data_set_is_no_data_set(
    capspoe, tiny_model, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    out = tmp_path / "digits" / "grid.png"
    said(capspoe("sample", "--model-dir", tiny_model, "--out", out), 0, "Wrote")


def test_the_archive_of_the_images_is_not_written_over(capspoe, tmp_path):
    path = tmp_path / "images.npz"
    images = np.random.default_rng(0).integers(0, 256, (30, 12, 12), dtype=np.uint8)
    np.savez(path, images=images)
    before = path.read_bytes()
    small = ("--set", "rbm.hidden=4", "--epochs", 1, "--model-dir", tmp_path / "m")
    said(capspoe("train", "--model", "rbm", "--dataset", path, *small), 0)
    command = ("sample", "--model-dir", tmp_path / "m", "--out", path)
    said(capspoe(*command), 1, "is the data set of", "choose another path")
    assert path.read_bytes() == before


class Small(keras.Model):
    """Model with one endpoint, which is quick to export."""

    TITLE, ENDPOINTS, SHARED, image_shape = "Small", {"half": ("images",)}, {}, (4, 4, 1)
    view = None

    def half(self, images):
        return {"half": images / 2}


def test_info_says_that_a_model_cannot_be_loaded(capspoe, tiny_model, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(tiny_model, folder)
    assert "Cannot load" not in capspoe("info", "--model-dir", folder).output
    (folder / "model.keras").write_bytes(b"damaged")
    said(capspoe("info", "--model-dir", folder), 0, "model.keras", "is not what stage export wrote")


def test_exports_of_pretrained_models_go_to_the_working_folder(capspoe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = []

    def write(model, place, card, options):
        written.append(place)
        return place / "1"

    monkeypatch.setattr("keras_capsule_poe.serving.export_saved_model", write)
    said(capspoe("export", "--model", "mnist"), 0, "Wrote mnist/1")
    said(capspoe("export", "--model", "mnist", "--out", tmp_path / "a"), 0, "a/1")
    assert written == [Path("mnist"), tmp_path / "a"]


def test_exports_at_the_same_time_are_two_versions(tmp_path):
    models = [Small(), Small()]
    for model in models:
        model.build((None, 4, 4, 1))
    paths, errors = [], []

    def export(model):
        try:
            paths.append(export_saved_model(model, tmp_path, {}))
        except Exception as error:
            errors.append(error)

    # Two threads share a model.
    threads = [threading.Thread(target=export, args=(model,)) for model in (*models, models[0])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (
        sorted(path.name for path in paths) == ["1", "2", "3"] == list(map(str, versions(tmp_path)))
    )


def test_a_version_that_another_process_took_is_left_alone(tmp_path):
    taken = iter([1, 2])

    def next_name():
        return str(next(taken))

    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "theirs").touch()
    written = atomic.write_next(tmp_path, lambda folder: folder.mkdir(), next_name)
    assert written == tmp_path / "2" and os.listdir(tmp_path / "1") == ["theirs"]


def test_settings_come_through_a_pipe(tmp_path):
    command = [*CAPSPOE, "train", "--config"]
    text = "\ufeffmodel = 'rbm'\n[rbm]\nhidden = -3\n"
    found = subprocess.run(
        [*command, "/dev/stdin", "--model-dir", tmp_path / "m"],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "`hidden` must be" in found.stderr and "-3" in found.stderr, found.stderr


def test_a_file_without_an_end_is_refused(capspoe):
    said(capspoe("train", "--config", "/dev/zero"), 2, "more than 1,048,576 bytes")


def test_a_user_without_a_home_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("CAPSPOE_CACHE", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda user: {}[user])

    class Images:
        fingerprint = label_fingerprint = "a"

    assert _cache_path(Images, 3, None).name.endswith("-a-3-a.keras")
    with pytest.raises(BadUse, match="There is no home folder for ~nosuch/x"):
        user_path("~nosuch/x")


def test_a_name_that_is_too_long_is_one_line(capspoe, tiny_model, tmp_path):
    out = tmp_path / ("n" * 300) / "grid.png"
    said(capspoe("sample", "--model-dir", tiny_model, "--out", out), 2, "File name too long")


def test_a_working_folder_that_is_gone_is_one_line(capspoe, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    here = os.getcwd()
    os.chdir(gone)
    gone.rmdir()
    try:
        said(capspoe("train", "--dataset", "digits"), 2, "The working folder no longer exists")
    finally:
        os.chdir(here)


def test_a_relative_data_set_is_found_from_any_folder(of_images, capspoe, tmp_path, monkeypatch):
    folder, _ = of_images
    monkeypatch.chdir(folder.parent)
    small = ("--set", "rbm.hidden=4", "--epochs", 1, "--model-dir", tmp_path / "m")
    said(capspoe("train", "--model", "rbm", "--dataset", folder.name, *small), 0)
    monkeypatch.chdir(tmp_path)
    out = ("--out", tmp_path / "r.png")
    said(capspoe("reconstruct", "--model-dir", tmp_path / "m", *out), 0)
    monkeypatch.chdir(folder.parent)
    said(capspoe("train", "--model", "rbm", "--dataset", folder.name, *small), 0)


def test_the_whole_path_is_named_if_its_folders_have_odd_names(tmp_path, monkeypatch):
    odd = tmp_path / "a[1]"
    odd.mkdir()
    monkeypatch.chdir(odd)
    with pytest.raises(ConfigError, match=r"Received: /.*a\[1\]/m"):
        RunFolder("m")


def test_a_dry_run_has_no_checkpoints_to_speak_of(tmp_path):
    words = ("train", "--dry-run", "--dataset", "digits", "--model", "rbm", "--model-dir")
    reader, writer = os.pipe()
    os.close(reader)
    found = subprocess.run(
        [*CAPSPOE, *words, tmp_path / "m"],
        stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writer)
    assert found.returncode == 1
    assert "checkpoint" not in found.stderr and "Traceback" not in found.stderr


def test_files_of_another_container_stay(tmp_path):
    with atomic.temporary_path(tmp_path / "a") as mine:
        theirs = mine.with_name(f".a.{1:06x}{'ffff'}ab")
        assert atomic._process_space() != "ffff"
        theirs.touch()
        atomic.remove_stale_files(tmp_path)
        assert theirs.exists()
        os.utime(theirs, (0, 0))
        atomic.remove_stale_files(tmp_path)
        assert not theirs.exists()


def test_a_folder_that_cannot_be_renamed_is_replaced(tmp_path, monkeypatch):
    target = tmp_path / "1"
    target.mkdir()
    (target / "old").touch()
    rename = os.rename

    def overlay(source, other):
        if os.fspath(source) == os.fspath(target):
            raise OSError(18, "Invalid cross-device link")
        return rename(source, other)

    monkeypatch.setattr(os, "rename", overlay)
    with atomic_write(target) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert os.listdir(target) == ["new"] and os.listdir(tmp_path) == ["1"]
