"""One image file, of whatever format and colour mode, as an array."""

import os
import stat
import warnings

import numpy as np

from keras_capsule_poe.data.pixels import floats_to_bytes
from keras_capsule_poe.errors import DataError


class UnreadableImage(Exception):
    """A file that no image can be read from; the message says why, as what the file is."""


def read_image(path):
    """Reads the first image of a file, upright and without transparency.

    Args:
        path: path of the file.

    Returns:
        `(H, W, C)` uint8 array; C is 1 for a grey image (also one of 16 bit, or with a grey
        palette) and 3 for any other. Transparent pixels are blended with black.

    Raises:
        UnreadableImage: if the file may not be read, cannot be decoded or is far too large.
        DataError: if its pixels have no known range.
    """
    from PIL import Image, ImageOps

    try:
        # To open a FIFO would wait for whoever writes into it.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UnreadableImage("is no file")
        file = open(path, "rb")
    except OSError as error:
        raise UnreadableImage(f"cannot be read: {error.strerror or error}") from error
    with file, warnings.catch_warnings():
        # Pillow warns of odd metadata and of images that are merely large.
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
        # Decoders fail in many ways on damaged files: OSError, SyntaxError, struct.error and more.
        except Exception as error:
            raise UnreadableImage("is broken or no image") from error
    return _deep(path, array) if deep else array


def _shallow(image):
    """An image of 8 bit or less as `(H, W, C)` uint8."""
    from PIL import Image

    grey = image.mode in ("1", "L", "LA", "La")
    palette = image.mode in ("P", "PA")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "black"), image)
    array = np.asarray(image.convert("RGB"))
    return array[..., :1] if grey or (palette and (array == array[..., :1]).all()) else array


def _deep(path, array):
    """A grey image of more than 8 bit; Pillow itself would cut it off at 255."""
    if array.dtype.kind != "f":
        low, high = array.min(), array.max()
        if low < 0 or high > 65535:
            raise DataError(
                f"{path} must hold integers in [0, 65535]; convert it to 8 bit. "
                f"Received: values from {low} to {high}."
            )
        array = array / 65535
    return floats_to_bytes(array, path)[..., np.newaxis]
