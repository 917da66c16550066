"""Grids of images, and image files of them."""

from pathlib import Path

import numpy as np

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.io.files import beside

GAP, LEAST_HEIGHT = 2, 56
# Of the text above columns, pixels.
TEXT, LEAST_TEXT, LINE = 13, 7, 18
# What each kind of file can hold, pixels a side; and what any may: 600 MB in memory.
LARGEST_SIDE = {".jpg": 65_535, ".jpeg": 65_535, ".webp": 16_383}
LARGEST = 200_000_000


def check_grid(path, rows, columns, image_shape):
    """Refuses a `grid` that its file could not hold, before anything is computed for it.

    Args:
        path: The file; its ending says which kind.
        rows, columns: int, images.
        image_shape: (H, W, C) of an image; those of stereo pairs, C = 2, are side by side.

    Raises:
        BadUse: If it is too large.

    Examples:

    >>> check_grid("a.png", rows=6, columns=20, image_shape=(28, 28, 1))
    """
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
    """Images side by side in one array.

    Args:
        rows: list of arrays (N, H, W, C), pixels in [0, 1], NaN shown black; one array a row. The
            images of a stereo pair, C = 2, are shown side by side.
        gap: int, pixels between images before magnification.
        magnify: int factor; `None` makes images at least 56 pixels high.

    Returns:
        uint8 array (height, width, C).

    Examples:

    >>> grid([np.zeros((3, 4, 4, 1))], magnify=1).shape
    (8, 20, 1)
    """
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
    """Images (N, H, W, 2) as (N, H, 2 W, 1), others as they are."""
    return np.concatenate([row[..., :1], row[..., 1:]], axis=2) if row.shape[-1] == 2 else row


def picture(rows, captions=(), **options):
    """A `grid` as a Pillow image, grey or RGB.

    Args:
        rows, **options: See `grid`.
        captions: Sequence of str, above each column; smaller where they would not fit.

    Examples:

    >>> picture([np.zeros((3, 4, 4, 1))], magnify=1).size
    (20, 8)
    >>> picture([np.zeros((3, 28, 28, 1))], captions=["4", "9", "5 as 3"]).size
    (184, 82)
    """
    from PIL import Image, ImageDraw

    pixels = grid(rows, **options)
    shown = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    if not len(captions):
        return shown
    whole = Image.new(shown.mode, (shown.width, shown.height + LINE), _grey(shown.mode, 96))
    whole.paste(shown, (0, LINE))
    pen, width = ImageDraw.Draw(whole), shown.width / max(len(row) for row in rows)
    font = _font(pen, captions, width)
    for column, text in enumerate(captions):
        middle = ((column + 0.5) * width, LINE / 2)
        pen.text(middle, text, font=font, fill=_grey(shown.mode, 255), anchor="mm")
    return whole


def _grey(mode, value):
    return value if mode == "L" else (value,) * 3


def _font(pen, texts, width):
    """The largest font in which no text is wider, or the smallest that can be read."""
    from PIL import ImageFont

    for size in range(TEXT, LEAST_TEXT, -1):
        font = ImageFont.load_default(size)
        if max(pen.textlength(text, font) for text in texts) <= width:
            return font
    return ImageFont.load_default(LEAST_TEXT)


def save_grid(path, rows, **options):
    """Writes a `picture` as an image file, whole or not at all.

    Args:
        path: The file; its ending says which kind.
        rows, **options: See `picture`.

    Raises:
        RunFailed: If it cannot be written.

    Examples:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_grid(Path(folder) / "a.png", [np.zeros((3, 4, 4, 1))])
    ...     (Path(folder) / "a.png").exists()
    True
    """
    with beside(path, suffix=Path(path).suffix) as temporary:
        picture(rows, **options).save(temporary)
