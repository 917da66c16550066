"""Size, colour and range of uint8 images."""

import math
import os

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
