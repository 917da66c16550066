"""Matplotlib charts as pixels and as image files."""

from pathlib import Path

import numpy as np

from keras_capsule_poe.io.atomic import atomic_write

DOTS = 110  # dots per inch


def chart_pixels(figure):
    """Return a matplotlib `Figure` as a uint8 array (height, width, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DOTS)
    show_names(figure)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def show_names(figure):
    """Show all texts of a `Figure` as they are; "a$b$c" is a class name, not a formula."""
    from matplotlib.text import Text

    powers = {
        label
        for panel in figure.axes
        for axis in (panel.xaxis, panel.yaxis)
        if axis.get_scale() == "log"
        for label in axis.get_ticklabels(which="both")
    }
    for text in set(figure.findobj(Text)) - powers:
        text.set_parse_math(False)


def save_chart(path, figure):
    """Write a chart to an image file atomically; the file ending sets the format."""
    from PIL import Image

    with atomic_write(path, suffix=Path(path).suffix) as temporary:
        Image.fromarray(chart_pixels(figure)).save(temporary)
