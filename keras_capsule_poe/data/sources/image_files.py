"""Reading of single image files: formats, transparency and more than 8 bits."""

import dataclasses
import functools
import os
import stat
import warnings

import numpy as np

from keras_capsule_poe.data.pixels import floats_to_bytes
from keras_capsule_poe.errors import DataError

BACKGROUNDS = ("black", "white")
# Formats that Pillow recognizes without decoding them, or only with another program.
_NOT_DECODED = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}
# Usual ranges of integers: 8 to 16 bits.
_RANGES = tuple(2**bits - 1 for bits in (8, 10, 12, 14, 16))
# Files per part that determine background and range.
SURVEYED = 1000


@functools.cache
def extensions():
    """Return the file extensions that the installed Pillow decodes, in lower case."""
    from PIL import Image

    known = Image.registered_extensions().items()
    return frozenset(
        extension.lower()
        for extension, kind in known
        if kind in Image.OPEN and kind not in _NOT_DECODED
    )


class UnreadableImage(Exception):
    """Error of a file that holds no readable image; its message follows the path."""


@dataclasses.dataclass(frozen=True)
class Conversion:
    """How the images of a whole set become uint8."""

    # Colour behind transparent pixels.
    background: str = "black"
    # Integer of a file of more than 8 bits that becomes 255.
    max_value: int = 65535


def read_image(path, conversion=None):
    """Read the first image of a file, upright, as uint8 (H, W, C), C 1 or 3."""
    conversion = conversion or Conversion()
    image = _opened(path)
    if _is_deep(image):
        return _deep(path, np.asarray(image), conversion.max_value)
    return _shallow(image, conversion.background)


def _is_deep(image):
    return image.mode.startswith(("I", "F"))


def _opened(path, wanted=lambda image: True):
    """Return the upright image of a file, decoded; None unless its header is `wanted`."""
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
                if not wanted(image):
                    return None
                image.load()
                return ImageOps.exif_transpose(image)
        except Image.DecompressionBombError as error:
            most = 2 * Image.MAX_IMAGE_PIXELS
            raise UnreadableImage(f"is too large, it holds more than {most:,} pixels") from error
        # Damaged files raise OSError, SyntaxError, struct.error and more.
        except Exception as error:
            raise UnreadableImage("is broken or no image") from error


def _shallow(image, background):
    """Convert an image of at most 8 bits to uint8 (H, W, C)."""
    grey = image.mode in ("1", "L", "LA", "La")
    palette = image.mode in ("P", "PA")
    if image.has_transparency_data:
        image = _composed(image, background)
    array = np.asarray(image.convert("RGB"))
    return array[..., :1] if grey or (palette and (array == array[..., :1]).all()) else array


def _composed(image, background):
    """Return an image in front of a background."""
    from PIL import Image

    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, background), image)


def _deep(path, array, max_value):
    """Convert a grey image of more than 8 bits to uint8."""
    # Pillow itself would clip at 255.
    if array.dtype.kind != "f":
        low, high = array.min(), array.max()
        if low < 0 or high > max_value:
            raise DataError(
                f"{path} must hold integers in [0, {max_value}], which become [0, 255]. "
                f"Received: values from {low} to {high}.",
                hint="max_value" if high <= 65535 else None,
            )
        array = array / max_value
    return floats_to_bytes(array, path)[..., np.newaxis]


def survey(paths, background=None, max_value=None):
    """Return the `Conversion` for image files, and a tuple of notes on it.

    Args:
        paths: list of str, a sample of the files.
        background: str, `"black"` or `"white"`. None: on which the images have more contrast.
        max_value: int, the largest integer of files of more than 8 bits. None: the smallest of
            255, 1023, 4095, 16383 and 65535 that no value exceeds.
    """
    contrast, highest, notes = dict.fromkeys(BACKGROUNDS, 0.0), 0, []
    for path in paths:
        try:
            image = _opened(path, lambda image: _is_deep(image) or image.has_transparency_data)
        except UnreadableImage:
            # Reading reports it.
            continue
        if image is None:
            continue
        if _is_deep(image):
            array = np.asarray(image)
            highest = max(highest, 0 if array.dtype.kind == "f" else int(array.max()))
            continue
        for name in BACKGROUNDS:
            contrast[name] += np.asarray(_composed(image, name).convert("L")).std()
    if background is None:
        is_white = contrast["white"] > contrast["black"]
        background = "white" if is_white else "black"
        if is_white:
            notes.append(
                "Transparent images are set on white, where they have more contrast than on black. "
                "`background` changes it."
            )
    if max_value is None:
        # Without a file of more than 8 bits, or of more than 16, nothing is scaled.
        max_value = next((most for most in _RANGES if 0 < highest <= most), _RANGES[-1])
        if max_value < _RANGES[-1]:
            notes.append(
                f"Images of more than 8 bits hold values up to {highest}: {max_value} is white. "
                "`max_value` changes it."
            )
    return Conversion(background, max_value), tuple(notes)
