"""Decoding of one image file to an array."""

import os
import stat
import warnings

import numpy as np

from keras_capsule_poe.data.pixels import floats_to_bytes
from keras_capsule_poe.errors import DataError


class UnreadableImage(Exception):
    """Error of a file that holds no readable image; its message follows the path."""


def read_image(path):
    """Read the first image of a file, upright and on black, as uint8 (H, W, C), C 1 or 3."""
    from PIL import Image, ImageOps

    try:
        # Opening a FIFO would wait for a writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UnreadableImage("is no file")
        file = open(path, "rb")
    except OSError as error:
        raise UnreadableImage(f"cannot be read: {error.strerror or error}") from error
    with file, warnings.catch_warnings():
        # Pillow warns of odd metadata and of large images.
        warnings.simplefilter("ignore")
        try:
            with Image.open(file) as image:
                image.load()
                image = ImageOps.exif_transpose(image)
            deep = image.mode.startswith(("I", "F"))
            array = np.asarray(image) if deep else _shallow(image)
        except Image.DecompressionBombError as error:
            most = 2 * Image.MAX_IMAGE_PIXELS
            raise UnreadableImage(f"is too large, it holds more than {most:,} pixels") from error
        # Damaged files raise OSError, SyntaxError, struct.error and more.
        except Exception as error:
            raise UnreadableImage("is broken or no image") from error
    return _deep(path, array) if deep else array


def _shallow(image):
    """Convert an image of at most 8 bits to uint8 (H, W, C)."""
    from PIL import Image

    grey = image.mode in ("1", "L", "LA", "La")
    palette = image.mode in ("P", "PA")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "black"), image)
    array = np.asarray(image.convert("RGB"))
    return array[..., :1] if grey or (palette and (array == array[..., :1]).all()) else array


def _deep(path, array):
    """Convert a grey image of more than 8 bits to uint8."""
    # Pillow itself would clip at 255.
    if array.dtype.kind != "f":
        low, high = array.min(), array.max()
        if low < 0 or high > 65535:
            raise DataError(
                f"{path} must hold integers in [0, 65535]; convert it to 8 bit. "
                f"Received: values from {low} to {high}."
            )
        array = array / 65535
    return floats_to_bytes(array, path)[..., np.newaxis]
