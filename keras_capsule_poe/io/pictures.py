"""Grids of images and matplotlib charts, as arrays and image files."""

from pathlib import Path

import numpy as np

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.io import fonts
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.io.marks import pillow_options
from keras_capsule_poe.io.text import printable

# Pixels between images, and the minimum height to which small images are magnified.
GAP, LEAST_HEIGHT = 2, 56
# Font sizes and line height of captions, in pixels.
TEXT, LEAST_TEXT, LINE = 13, 7, 18
# Maximum pixels per side of each format, and maximum pixels of any picture (600 MB as RGB).
LARGEST_SIDE = {".jpg": 65_535, ".jpeg": 65_535, ".webp": 16_383}
LARGEST = 200_000_000


def check_grid(path, rows, columns, image_shape):
    """Raise `BadUse` if a grid of images (H, W, C) is too large for its file format."""
    height, width, channels = image_shape
    sizes = ((rows, height), (columns, 2 * width if channels == 2 else width))
    factor = _magnification(height)
    height, width = (factor * (n * (size + GAP) + GAP) for n, size in sizes)
    most = LARGEST_SIDE.get(Path(path).suffix.lower(), LARGEST)
    if max(height, width) > most or height * width > LARGEST:
        raise BadUse(
            f"A picture of {rows} rows of {columns} images would be too large for {path}: "
            f"{height:,} by {width:,} pixels. Ask for fewer"
        )


def _magnification(height):
    return max(1, -(-LEAST_HEIGHT // height))


def grid(rows, gap=GAP, magnify=None):
    """Tile rows of images (N, H, W, C) in [0, 1] into one uint8 array; NaN becomes black."""
    rows = [_side_by_side(np.asarray(row)) for row in rows]
    height, width, channels = rows[0].shape[1:]
    columns = max(len(row) for row in rows)
    factor = magnify or _magnification(height)
    canvas = np.full(
        (len(rows) * (height + gap) + gap, columns * (width + gap) + gap, channels), 96, "uint8"
    )
    for r, row in enumerate(rows):
        for c, image in enumerate(row):
            top, left = gap + r * (height + gap), gap + c * (width + gap)
            pixels = np.nan_to_num(np.clip(image, 0, 1)) * 255
            canvas[top : top + height, left : left + width] = np.round(pixels).astype("uint8")
    return canvas.repeat(factor, axis=0).repeat(factor, axis=1)


def _side_by_side(row):
    """Return stereo pairs (N, H, W, 2) as (N, H, 2 W, 1), other images unchanged."""
    return np.concatenate([row[..., :1], row[..., 1:]], axis=2) if row.shape[-1] == 2 else row


def picture(rows, captions=(), **options):
    """Return a `grid` as a Pillow image, grey or RGB, with optional captions above columns."""
    from PIL import Image, ImageDraw

    pixels = grid(rows, **options)
    shown = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    if not len(captions):
        return shown
    whole = Image.new(shown.mode, (shown.width, shown.height + LINE), _grey(shown.mode, 96))
    whole.paste(shown, (0, LINE))
    pen, width = ImageDraw.Draw(whole), shown.width / max(len(row) for row in rows)
    captions = [printable(text) for text in captions]
    font = _font(pen, captions, width)
    for column, text in enumerate(captions):
        most = len(text)
        while pen.textlength(text, font) > width and most > 4:
            most -= 1
            text = printable(captions[column], most)
        middle = ((column + 0.5) * width, LINE / 2)
        pen.text(middle, text, font=font, fill=_grey(shown.mode, 255), anchor="mm")
    return whole


def _grey(mode, value):
    return value if mode == "L" else (value,) * 3


def _font(pen, texts, width):
    """Return the largest font in which all texts fit `width`, or the smallest readable one."""
    from PIL import ImageFont

    file = fonts.font_file("".join(texts))
    for size in range(TEXT, LEAST_TEXT - 1, -1):
        font = ImageFont.truetype(file, size) if file else ImageFont.load_default(size)
        if max(pen.textlength(text, font) for text in texts) <= width:
            break
    return font


def save_grid(path, rows, **options):
    """Write a `picture` to an image file atomically; the file ending sets the format."""
    with atomic_write(path, suffix=Path(path).suffix) as temporary:
        picture(rows, **options).save(temporary, **pillow_options(path))


DOTS = 110  # dots per inch


def chart_pixels(figure):
    """Return a matplotlib `Figure` as a uint8 array (height, width, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DOTS)
    show_names(figure)
    canvas = FigureCanvasAgg(figure)
    with fonts.without_warnings():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def show_names(figure):
    """Show all texts of a `Figure` as they are; "a$b$c" is a class name, not a formula.

    Letters that matplotlib's own font lacks are shown in an installed font that has them.
    """
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
        if more := fonts.families(text.get_text()):
            text.set_fontfamily([*text.get_fontfamily(), *more])


def save_chart(path, figure):
    """Write a chart to an image file atomically; the file ending sets the format."""
    from PIL import Image

    with atomic_write(path, suffix=Path(path).suffix) as temporary:
        Image.fromarray(chart_pixels(figure)).save(temporary, **pillow_options(path))
