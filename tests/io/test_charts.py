"""Charts as pixels and as files."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.pictures import chart_pixels, save_chart


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


def test_unwritable_place_is_refused(tmp_path):
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
