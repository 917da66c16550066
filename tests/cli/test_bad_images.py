"""Images that cannot be trained on: one clear line, exit code 2, and no folder."""

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def refused(capspoe, tmp_path):
    """Trains on a data set, and asks for a refusal in one line that holds some words."""
    folder = tmp_path / "m"

    def refused(dataset, *words, arguments=()):
        result = capspoe("train", "--dataset", dataset, "--model-dir", folder, *arguments)
        assert result.exit_code == 2, result.output
        last = result.output.strip().splitlines()[-1]
        for word in words:
            assert word in last, result.output
        assert not folder.exists()

    return refused


def test_images_that_cannot_be_used(refused, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(empty, "empty")
    path = tmp_path / "images.npz"
    np.savez(path, images=np.full((4, 28, 28), np.nan, "float32"))
    refused(path, "NaN")


@pytest.mark.parametrize("n", [3, 40])
def test_equal_images_are_refused_before_anything_is_trained(refused, tmp_path, n, tiny):
    path = tmp_path / "images.npz"
    np.savez(path, images=np.full((n, 28, 28), 7, "uint8"))
    refused(path, "from 7 to 7", arguments=tiny)


def test_the_flag_that_mends_them_is_named(refused, tmp_path):
    path = tmp_path / "images.npz"
    np.savez(path, a=np.zeros((4, 28, 28), "uint8"), b=np.zeros(4))
    refused(path, "arrays a, b", "with --column")
    small = np.random.default_rng(0).integers(0, 256, (4, 10, 28), dtype="uint8")
    np.savez(path, images=small)
    refused(path, "20x20", "10x28", "with --image-size")
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


def test_what_is_left_out_is_said(capspoe, tmp_path):
    random = np.random.default_rng(0)
    for i in range(12):
        pixels = random.integers(0, 256, (20, 20)).astype("uint8")
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    (tmp_path / "torn.png").write_bytes(b"no image")
    arguments = ("train", "--dataset", tmp_path, "--skip-broken", "--dry-run")
    result = capspoe(*arguments, "--model-dir", tmp_path / "m")
    assert result.exit_code == 0, result.output
    assert "1 unreadable file left out" in result.output
