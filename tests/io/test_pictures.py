"""Grids of images."""

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.errors import BadUse, RunFailed
from keras_capsule_poe.io.pictures import check_grid, grid, save_grid


def test_grid_puts_each_image_in_its_place():
    rows = [np.stack([np.full((20, 22, 1), value) for value in row]) for row in ((0, 1), (0.5, 2))]
    pixels = grid(rows, gap=1, magnify=1)
    assert pixels.shape == (2 * 21 + 1, 2 * 23 + 1, 1)
    assert pixels.dtype == np.uint8
    # Rounded to the nearest level, and clipped above one.
    assert [pixels[r, c, 0] for r in (5, 30) for c in (5, 30)] == [0, 255, 128, 255]
    assert (pixels[0] == 96).all()


@pytest.mark.parametrize(
    "name, rows, columns",
    [("a.webp", 300, 20), ("a.webp", 4, 300), ("a.jpg", 1200, 20), ("a.JPG", 1, 1200)]
    + [("a.png", 10_000, 20), ("a.png", 2_000, 2_000), ("a.png", 4, 10**9)],
)
def test_what_a_file_cannot_hold_is_refused_beforehand(name, rows, columns):
    with pytest.raises(BadUse, match=f"{rows} rows of {columns} images would be too large"):
        check_grid(name, rows, columns, (28, 28, 1))


@pytest.mark.parametrize("channels, largest", [(1, 272), (2, 141)])
def test_the_largest_picture_that_is_let_through_can_be_written(tmp_path, channels, largest):
    shape = (28, 28, channels)
    check_grid("a.webp", 1, largest, shape)
    with pytest.raises(BadUse):
        check_grid("a.webp", 1, largest + 1, shape)
    row = np.zeros((largest, *shape), "float32")
    save_grid(tmp_path / "a.webp", [row])
    width = grid([row]).shape[1]
    assert width <= 16_383 < width + 2 * (28 * channels + 2)


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
