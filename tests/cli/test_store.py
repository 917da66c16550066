"""Commands on images that lie in a store."""

import json

import numpy as np
import pytest

from keras_capsule_poe.data import load_images


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Digits without a split: training and test images are views by number."""
    digits = load_images("digits", limit=120).train
    path = tmp_path_factory.mktemp("archive") / "digits.npz"
    np.savez_compressed(path, images=digits.images, labels=digits.labels)
    return path


@pytest.fixture(scope="module")
def trained(capspoe, archive, tiny):
    folder = archive.parent / "model"
    stores = archive.parent / "stores"
    arguments = ("--dataset", archive, "--model-dir", folder, "--store", stores, *tiny)
    result = capspoe("train", *arguments)
    assert result.exit_code == 0, result.output
    assert len(list(stores.iterdir())) == 1
    return folder, stores


def figures(capspoe, folder, path, *arguments):
    arguments = ("--samples", "10", "--json", path, *arguments)
    result = capspoe("evaluate", "--model-dir", folder, *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(path.read_text())


@pytest.mark.long
def test_a_model_is_judged_alike_from_a_store_and_in_memory(capspoe, trained, tmp_path):
    """Its images have the same fingerprints, and every figure is the same."""
    folder, stores = trained
    stored = figures(capspoe, folder, tmp_path / "a.json", "--store", stores)
    assert stored["samples"]["real"]
    page = tmp_path / "page.html"
    options = ("--metrics", tmp_path / "a.json", "--store", stores, "--out", page)
    assert capspoe("report", "--model-dir", folder, *options).exit_code == 0 and page.exists()
    assert stored == figures(capspoe, folder, tmp_path / "b.json")


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ("reconstruct", "--out", "a.png"),
        ("traverse", "--out", "a.png", "--image", "1"),
        ("sample", "--mode", "meanfield", "--start", "data", "--steps", "2", "--out", "a.png"),
    ],
)
def test_pictures_are_of_its_images(capspoe, trained, tmp_path, monkeypatch, command):
    folder, stores = trained
    monkeypatch.chdir(tmp_path)
    pictures = []
    for more in (("--store", stores), ()):
        result = capspoe(*command, "--model-dir", folder, *more)
        assert result.exit_code == 0, result.output
        pictures.append((tmp_path / "a.png").read_bytes())
    assert pictures[0] == pictures[1]


def test_a_store_that_cannot_be_written_is_a_line(capspoe, archive, tiny, tmp_path):
    (tmp_path / "file").write_text("")
    arguments = ("--dataset", archive, "--model-dir", tmp_path / "model", *tiny)
    result = capspoe("train", *arguments, "--store", tmp_path / "file" / "stores")
    assert result.exit_code == 1
    assert "Cannot write in the folder" in result.output
    assert result.output.endswith("Choose another --store.\n")


def test_generated_images_have_none(capspoe, tiny, tmp_path):
    arguments = ("--dataset", "digits", "--model-dir", tmp_path / "model", *tiny)
    result = capspoe("train", *arguments, "--store", tmp_path / "stores")
    assert result.exit_code == 2
    assert "`store` has no meaning for the data set 'digits'" in result.output
    assert "Omit --store." in result.output
