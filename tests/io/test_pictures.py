"""Grids of images and charts."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from keras_capsule_poe.errors import BadUse, RunFailed
from keras_capsule_poe.io.pictures import chart_pixels, check_grid, grid, save_chart, save_grid


def test_grid_puts_each_image_in_its_place():
    rows = [np.stack([np.full((20, 22, 1), value) for value in row]) for row in ((0, 1), (0.5, 2))]
    pixels = grid(rows, gap=1, magnify=1)
    assert pixels.shape == (2 * 21 + 1, 2 * 23 + 1, 1)
    assert pixels.dtype == np.uint8
    # Rounded to the nearest level, and clipped above one.
    assert [pixels[r, c, 0] for r in (5, 30) for c in (5, 30)] == [0, 255, 128, 255]
    assert (pixels[0] == 96).all()


def test_what_a_file_cannot_hold_is_refused_beforehand():
    for name, rows, columns in [
        *(("a.webp", 300, 20), ("a.webp", 4, 300), ("a.jpg", 1200, 20), ("a.JPG", 1, 1200)),
        *(("a.png", 10_000, 20), ("a.png", 2_000, 2_000), ("a.png", 4, 10**9)),
    ]:
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


def red_half():
    figure = Figure(figsize=(2, 1))
    panel = figure.add_axes((0, 0, 1, 1))
    panel.set_axis_off()
    panel.axvspan(0, 0.5, color="red")
    panel.set(xlim=(0, 1), ylim=(0, 1))
    return figure


@pytest.mark.parametrize("ending", [".png", ".webp", ".jpg"])
def test_a_file_shows_what_the_pixels_say(tmp_path, ending):
    pixels = chart_pixels(red_half())
    assert pixels.shape == (110, 220, 3) and pixels.dtype == np.uint8
    assert pixels[50, 50].tolist() == [255, 0, 0] and pixels[50, 150].tolist() == [255] * 3
    path = tmp_path / f"a{ending}"
    save_chart(path, red_half())
    with Image.open(path) as image:
        shown = np.asarray(image.convert("RGB")).astype(int)
    # JPEG's rounding, away from edges.
    assert np.abs(shown - pixels)[40:60, 40:60].max() < 5
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_chart_in_an_unwritable_place_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunFailed, match="chart.png"):
        save_chart(tmp_path / "file" / "chart.png", Figure())


@pytest.mark.parametrize("name", ["a$b$c", r"$\frac{$", "$", r"caf\xe9_^"])
def test_names_are_no_formulas(name):
    figure = Figure()
    panel = figure.subplots()
    panel.plot([1, 2], label=name)
    panel.set(title=name, xlabel=name, yscale="log")
    panel.set_xticks([0, 1], labels=[name, "b"])
    panel.text(0, 1, name)
    panel.legend(title=name)
    chart_pixels(figure)
    shown = [text for text in figure.findobj(Text) if text.get_text() == name]
    assert len(shown) >= 6 and not any(text.get_parse_math() for text in shown)
    # The powers of ten of a logarithmic axis still are.
    assert any(label.get_parse_math() for label in panel.yaxis.get_ticklabels(which="both"))
