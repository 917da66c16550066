"""Grids of images."""

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.pictures import grid, save_grid


def test_grid_puts_each_image_in_its_place():
    rows = [np.stack([np.full((20, 22, 1), value) for value in row]) for row in ((0, 1), (0.5, 2))]
    pixels = grid(rows, gap=1, magnify=1)
    assert pixels.shape == (2 * 21 + 1, 2 * 23 + 1, 1)
    assert pixels.dtype == np.uint8
    # Rounded to the nearest level, and clipped above one.
    assert [pixels[r, c, 0] for r in (5, 30) for c in (5, 30)] == [0, 255, 128, 255]
    assert (pixels[0] == 96).all()


def test_nan_is_black():
    assert grid([np.full((1, 20, 20, 1), np.nan)], gap=0, magnify=1).max() == 0


def test_small_images_are_magnified_and_rgb_kept(tmp_path):
    image = np.zeros((1, 20, 20, 3))
    image[..., 0] = 1
    save_grid(tmp_path / "a.png", [image], gap=0)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (60, 60)
        assert picture.getpixel((30, 30)) == (255, 0, 0)


def test_unwritable_place_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunFailed, match="grid.png"):
        save_grid(tmp_path / "file" / "grid.png", [np.zeros((1, 20, 20, 1))])
