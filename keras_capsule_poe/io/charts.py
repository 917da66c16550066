"""Charts of matplotlib as pixels and as image files."""

from pathlib import Path

import numpy as np

from keras_capsule_poe.io.files import beside

DOTS = 110  # an inch


def chart_pixels(figure):
    """What a chart looks like.

    Args:
        figure: matplotlib `Figure`, made without pyplot, which would keep it for ever.

    Returns:
        uint8 array (height, width, 3).

    Examples:

    >>> from matplotlib.figure import Figure
    >>> chart_pixels(Figure(figsize=(2, 1))).shape
    (110, 220, 3)
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DOTS)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def save_chart(path, figure):
    """Writes a chart as an image file, whole or not at all.

    Args:
        path: The file; its ending says which kind, any that `save_grid` writes.
        figure: See `chart_pixels`.

    Raises:
        RunFailed: If it cannot be written.

    Examples:

    >>> import tempfile
    >>> from matplotlib.figure import Figure
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_chart(Path(folder) / "a.png", Figure())
    ...     (Path(folder) / "a.png").exists()
    True
    """
    from PIL import Image

    with beside(path, suffix=Path(path).suffix) as temporary:
        Image.fromarray(chart_pixels(figure)).save(temporary)
