"""Changes of size and colour, on uint8 arrays."""

import math
import os

import numpy as np

from keras_capsule_poe.errors import DataError


def check_room(n, image_shape, copies=1):
    """Refuses images that the machine's memory could not hold, before it is filled.

    Args:
        n: int, how many images.
        image_shape: `(H, W, C)`.
        copies: int, how often they are held at the same time.

    Raises:
        DataError: if they take more than there is.

    Examples:

    >>> check_room(60_000, (28, 28, 1))
    """
    shape = "x".join(map(str, image_shape))
    needed = copies * n * math.prod(image_shape)
    check_memory(f"{n:,} images of {shape}", needed, mend=("image_size", "store"))


def check_memory(what, needed, mend=None):
    """Refuses what would take more bytes than the machine's memory has.

    Raises:
        DataError: if it would; `mend` is what would mend it, see `CapspoeError`.

    Examples:

    >>> check_memory("the digits", 115_008)
    """
    there = _memory()
    if needed > there:
        raise DataError(
            f"{what} would take {needed / 1e9:,.0f} GB of memory, of which there are "
            f"{there / 1e9:,.0f} here.",
            mend=mend,
        )


def _memory():
    """Bytes of memory of this machine; without bound where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return math.inf


def fit_images(images, image_size=None, grey=False):
    """Resizes images and turns them grey, where asked to.

    Args:
        images: `(N, H, W, C)` uint8 array, C is 1, 2 (a stereo pair) or 3.
        image_size: `(height, width)`, or `None` to keep the size.
        grey: whether to turn RGB images grey.

    Returns:
        `(N, height, width, C)` uint8 array; `images` itself where nothing changes.

    Examples:

    >>> fit_images(np.zeros((2, 40, 40, 3), np.uint8), (28, 32), grey=True).shape
    (2, 28, 32, 1)
    """
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
    """`fit_images` for one `(H, W, C)` image."""
    from PIL import Image

    if grey and image.shape[-1] == 3:
        image = np.asarray(Image.fromarray(image).convert("L"))[..., np.newaxis]
    if image_size and image.shape[:2] != image_size:
        height, width = image_size
        # A pair of grey images is no colour mode of Pillow's.
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
    """Floats in [0, 1], of any shape, to uint8 in [0, 255], rounded to the nearest.

    Raises:
        DataError: naming `what`, if a value is NaN or outside [0, 1].

    Examples:

    >>> floats_to_bytes(np.array([0.0, 0.5, 1.0]), "array").tolist()
    [0, 128, 255]
    """
    low, high = values.min(), values.max()
    if np.isnan(low):
        raise DataError(f"{what} must not hold NaN. Received: {np.isnan(values).sum()} NaN values.")
    if low < 0 or high > 1:
        raise DataError(
            f"{what} must hold floats in [0, 1]; scale them, or store uint8. "
            f"Received: values from {low:g} to {high:g}."
        )
    units = np.empty(values.shape, np.uint8)
    # One row at a time: a temporary float copy of everything would be four times as large.
    for i, row in enumerate(values):
        units[i] = np.rint(row * 255.0)
    return units
