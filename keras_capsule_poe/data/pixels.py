"""From arrays and image files to uint8 pixels: shape, range, size, colour and transparency."""

import dataclasses
import functools
import math
import os
import stat
import warnings

import numpy as np

from keras_capsule_poe.data.mapping import chunks
from keras_capsule_poe.errors import DataError


def check_room(n, image_shape, copies=1):
    """Raise `DataError` if `copies` of `n` images exceed the machine's memory."""
    shape = "x".join(map(str, image_shape))
    needed = copies * n * math.prod(image_shape)
    check_memory(f"{n:,} images of {shape}", needed, hint=("image_size", "store"))


def check_memory(what, needed, hint=None):
    """Raise `DataError` if `needed` bytes exceed the machine's memory."""
    there = _memory()
    if needed > there:
        raise DataError(
            f"{what} would take {needed / 1e9:,.0f} GB of memory, of which there are "
            f"{there / 1e9:,.0f} here.",
            hint=hint,
        )


def _memory():
    """Return the machine's memory in bytes, or infinity if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return math.inf


def fit_images(images, image_size=None, grey=False):
    """Resize images (N, H, W, C) and convert RGB to grey; return the input if nothing changes."""
    size = image_size or images.shape[1:3]
    channels = 1 if grey and images.shape[-1] == 3 else images.shape[-1]
    if (*size, channels) == images.shape[1:]:
        return images
    check_room(len(images), (*size, channels))
    fitted = np.empty((len(images), *size, channels), np.uint8)
    for i, image in enumerate(images):
        fitted[i] = fit_image(image, image_size, grey)
    return fitted


def fit_image(image, image_size=None, grey=False):
    """Resize one image (H, W, C) and convert RGB to grey."""
    from PIL import Image

    if grey and image.shape[-1] == 3:
        image = np.asarray(Image.fromarray(image).convert("L"))[..., np.newaxis]
    if image_size and image.shape[:2] != image_size:
        height, width = image_size
        # Pillow has no colour mode for a stereo pair.
        pictures = [image] if image.shape[-1] == 3 else list(np.moveaxis(image, -1, 0))
        resized = [
            np.asarray(
                Image.fromarray(picture).resize((width, height), Image.Resampling.LANCZOS)
            ).reshape(height, width, -1)
            for picture in pictures
        ]
        image = np.concatenate(resized, axis=-1)
    return image


def floats_to_bytes(values, what):
    """Round floats in [0, 1] to uint8 in [0, 255]; errors name the array as `what`."""
    low, high = values.min(), values.max()
    if np.isnan(low):
        raise DataError(f"{what} must not hold NaN. Received: {np.isnan(values).sum()} NaN values.")
    if low < 0 or high > 1:
        raise DataError(
            f"{what} must hold floats in [0, 1]; scale them, or store uint8. "
            f"Received: values from {low:g} to {high:g}."
        )
    units = np.empty(values.shape, np.uint8)
    # Row by row: a float copy of everything would be several times as large as the result.
    for i, row in enumerate(values):
        units[i] = np.rint(row * 255.0)
    return units


def check_images(images, what, channels=None, image_shape=None):
    """Raise `DataError` unless an array has a shape and a dtype of images.

    Args:
        images: array (N, H, W) or (N, H, W, C), or anything with its shape and dtype.
        what: str, names the array in errors.
        channels: tuple of int, accepted numbers C of channels. Default: any.
        image_shape: tuple (H, W, C), the only accepted shape. Default: any.
    """
    received = f"Received: shape {images.shape} and dtype {images.dtype}."
    shape = images.shape if len(images.shape) == 4 else (*images.shape, 1)
    if len(shape) != 4 or (image_shape is not None and shape[1:] != tuple(image_shape)):
        height, width, depth = image_shape or "HWC"
        grey = f" or (N, {height}, {width})" if depth in (1, "C") else ""
        raise DataError(f"{what} must have shape (N, {height}, {width}, {depth}){grey}. {received}")
    if channels and shape[-1] not in channels:
        raise DataError(
            f"{what} must have {' or '.join(map(str, channels))} channels, in the last dimension: "
            f"(N, H, W, C). {received}"
        )
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise DataError(
            f"{what} must be uint8 in [0, 255] or floats in [0, 1]. {received} "
            "Convert integers with `.astype('uint8')`."
        )


# Grey levels below which images are refused, and below which a line says that they are faint.
_NO_CONTRAST, _FAINT = 3, 26
_AT_ONCE = 1000


def check_contrast(images):
    """Raise `DataError` if uint8 images (N, H, W, C) are equal; return a tuple of notes on them."""
    first, low, high, differ = images[0], 255, 0, False
    for number, part in enumerate(map(np.asarray, chunks(images, _AT_ONCE))):
        low, high = min(low, int(part.min())), max(high, int(part.max()))
        differ = differ or bool((part != first).any())
        if differ and number >= 9:
            break
    if len(images) > 1 and not differ:
        raise DataError(
            f"training images must differ. Received: {len(images)} equal images, with values from "
            f"{low} to {high}."
        )
    if high - low < _NO_CONTRAST:
        raise DataError(
            "images must use the range from 0 (black) to 255 (white). "
            f"Received: values from {low} to {high} only."
        )
    if high < _FAINT:
        return (f"The images are nearly black: the largest value is {high} of 255.",)
    return ()


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
