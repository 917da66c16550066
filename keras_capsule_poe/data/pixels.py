"""Arrays of images: memory, size, colour, range and contrast."""

import math
import os
from numbers import Integral

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


# A grey image of this size takes 64 MiB.
LARGEST = 8192


def size_given(size):
    """Return an option `image_size`, a side or a pair of them, as (height, width)."""
    pair = tuple(size) if hasattr(size, "__iter__") else (size, size)
    are_whole = all(isinstance(side, Integral) and not isinstance(side, bool) for side in pair)
    if len(pair) != 2 or not are_whole or not 1 <= min(pair) <= max(pair) <= LARGEST:
        raise DataError(
            "`image_size` must be an integer or a pair (height, width) of integers, from 1 to "
            f"{LARGEST}. Received: image_size={size!r:.80}."
        )
    return tuple(map(int, pair))


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


def fit_image(image, image_size=None, grey=False, resampling="lanczos"):
    """Resize one image (H, W, C) and convert RGB to grey."""
    from PIL import Image

    if grey and image.shape[-1] == 3:
        image = np.asarray(Image.fromarray(image).convert("L"))[..., np.newaxis]
    if image_size and image.shape[:2] != image_size:
        height, width = image_size
        # Pillow has no colour mode for a stereo pair.
        pictures = [image] if image.shape[-1] == 3 else list(np.moveaxis(image, -1, 0))
        how = Image.Resampling[resampling.upper()]
        resized = [
            np.asarray(Image.fromarray(picture).resize((width, height), how)).reshape(
                height, width, -1
            )
            for picture in pictures
        ]
        image = np.concatenate(resized, axis=-1)
    return image


# Shorter side of images that are enlarged because they are too small for a model.
ENLARGED = 28


def enlarged_size(image_shape, least):
    """Return (H, W) for images that have less than `least` pixels on a side, in proportion.

    >>> enlarged_size((8, 8, 1), 20), enlarged_size((16, 64, 1), 20)
    ((28, 28), (28, 112))
    """
    shorter, wanted = min(image_shape[:2]), max(ENLARGED, least)
    return tuple(round(side * wanted / shorter) for side in image_shape[:2])


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
        advice = "Divide integers by the value of white, as floats."
        if images.dtype.kind == "b":
            advice = "Convert zeros and ones with `.astype('float32')`."
        raise DataError(
            f"{what} must be uint8 in [0, 255] or floats in [0, 1]. {received} {advice}"
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


# Usual ranges of integers: 8 to 16 bits.
RANGES = tuple(2**bits - 1 for bits in (8, 10, 12, 14, 16))


def usual_range(values):
    """Return the number that is white in an image of such values, if nothing else says so."""
    highest = values.max(initial=0)
    if values.dtype.kind == "f" and highest <= 1:
        return 1
    # Without a value above zero nothing is scaled.
    return next((most for most in RANGES if 0 < highest <= most), RANGES[-1])


def scaled(values, white, name):
    """Return values from 0 to `white` as uint8 from 0 to 255."""
    low, high = values.min(), values.max()
    if low < 0 or high > white:
        kind = "floats" if values.dtype.kind == "f" else "integers"
        raise DataError(
            f"{name} must hold {kind} in [0, {white:g}], which become [0, 255]. "
            f"Received: values from {low:g} to {high:g}.",
            hint="max_value" if low >= 0 and np.isfinite(high) else None,
        )
    return floats_to_bytes(values if white == 1 else values / white, name)
