"""Changes of images that make a training set larger: pure functions of images and randomness.

Each takes images `(B, H, W, C)` and an `np.random.Generator`, so that `stream(augment=...)` can
call it or a function that calls several.
"""

import numpy as np

from keras_capsule_poe.data.windows import cut, place


def shift(images, random, most=2):
    """Moves each image by whole pixels, dark ones coming in: the 25 shifts of the 2017 code.

    Args:
        images: Array (B, H, W, C).
        random: `np.random.Generator`.
        most: int, pixels down or up and to either side, each number of them as likely.

    Returns:
        Array of the same shape and dtype.

    Examples:

    >>> images = np.ones((1, 4, 4, 1), np.uint8)
    >>> shift(images, np.random.default_rng(0))[0, :, :, 0].tolist()
    [[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, 1]]
    """
    by = random.integers(-most, most + 1, (2, len(images)))
    return place(images, images.shape[1:3], *by)


def random_crop(images, random, size):
    """A square window of each image, at a random place.

    Args:
        images: Array (B, H, W, C).
        random: `np.random.Generator`.
        size: int, at most H and W.

    Returns:
        Array (B, size, size, C).

    Raises:
        ValueError: If the images are smaller.

    Examples:

    >>> random_crop(np.zeros((2, 32, 32, 3)), np.random.default_rng(0), 24).shape
    (2, 24, 24, 3)
    """
    down, right = _room(images, size)
    top, left = (random.integers(0, room + 1, len(images)) for room in (down, right))
    return cut(images, (size, size), top, left)


def center_crop(images, size):
    """The square window in the middle of each image, for testing.

    Args:
        images: Array (B, H, W, C).
        size: int, at most H and W.

    Returns:
        Array (B, size, size, C).

    Raises:
        ValueError: If the images are smaller.

    Examples:

    >>> center_crop(np.zeros((2, 32, 32, 3)), 24).shape
    (2, 24, 24, 3)
    """
    top, left = (room // 2 for room in _room(images, size))
    return images[:, top : top + size, left : left + size]


def _room(images, size):
    """Rows and columns that a window of this size leaves."""
    height, width = images.shape[1:3]
    if not 1 <= size <= min(height, width):
        raise ValueError(
            f"`size` must be from 1 to the smaller side of the images. Received: size={size} of "
            f"images of {height}x{width}."
        )
    return height - size, width - size


def flip(images, random):
    """Mirrors each image from left to right, or not. Not for digits.

    Args:
        images: Array (B, H, W, C).
        random: `np.random.Generator`.

    Returns:
        Array of the same shape and dtype.

    Examples:

    >>> rows = np.tile(np.arange(3).reshape(1, 1, 3, 1), (4, 1, 1, 1))
    >>> flip(rows, np.random.default_rng(0))[:, 0, :, 0].tolist()
    [[2, 1, 0], [2, 1, 0], [2, 1, 0], [0, 1, 2]]
    """
    mirrored = random.integers(0, 2, len(images)).astype(bool)
    return np.where(mirrored[:, None, None, None], images[:, :, ::-1], images)


def jitter(images, random, brightness=63.0, contrast=(0.2, 1.8)):
    """Makes each image brighter or darker, then its contrast smaller or larger.

    The contrast is around the mean of each channel of an image. Nothing is clipped.

    Args:
        images: Array (B, H, W, C), in units of grey levels, 0 to 255.
        random: `np.random.Generator`.
        brightness: float, grey levels that are added or taken away at most.
        contrast: pair of float, least and largest factor.

    Returns:
        float32 array of the same shape.

    Examples:

    >>> images = np.array([100, 120], np.uint8).reshape(1, 1, 2, 1)
    >>> jitter(images, np.random.default_rng(0), brightness=0, contrast=(0.5, 0.5)).ravel().tolist()
    [105.0, 115.0]
    """
    each = (len(images), 1, 1, 1)
    brighter = images + random.uniform(-brightness, brightness, each).astype(np.float32)
    mean = brighter.mean(axis=(1, 2), keepdims=True)
    return (brighter - mean) * random.uniform(*contrast, each).astype(np.float32) + mean


def standardize(images):
    """Each image with mean 0 and variance 1 over all its pixels and channels.

    The deviation counts as at least 1 / sqrt(number of pixels), so that a uniform image is 0.

    Args:
        images: Array (B, H, W, C), in units of grey levels, 0 to 255.

    Returns:
        float32 array of the same shape.

    Examples:

    >>> standardize(np.array([0, 200], np.uint8).reshape(1, 1, 2, 1)).ravel().tolist()
    [-1.0, 1.0]
    """
    images = images.astype(np.float32)
    axes = (1, 2, 3)
    mean = images.mean(axis=axes, keepdims=True)
    least = np.float32(np.prod(images.shape[1:])) ** -0.5
    return (images - mean) / np.maximum(images.std(axis=axes, keepdims=True), least)


def cifar(images, random, size=24, standardized=True):
    """Training images of CIFAR-10 as the 2017 code has them: cropped, mirrored, jittered.

    Args:
        images: uint8 array (B, H, W, C), 32x32.
        random: `np.random.Generator`.
        size: int, of the window.
        standardized: bool; if not, in units of grey levels, for a model that does the rest.

    Returns:
        float32 array (B, size, size, C).

    Examples:

    >>> images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    >>> cifar(images, np.random.default_rng(0)).shape
    (2, 24, 24, 3)
    """
    found = jitter(flip(random_crop(images, random, size), random), random)
    return standardize(found) if standardized else found


def norb(images, random, size=32, standardized=True):
    """Training images of smallNORB as the 2017 code has them: jittered, then cropped.

    Args:
        images: uint8 array (B, H, W, C), 48x48 stereo pairs.
        random: `np.random.Generator`.
        size: int, of the window.
        standardized: See `cifar`.

    Returns:
        float32 array (B, size, size, C).

    Examples:

    >>> images = np.random.default_rng(0).integers(0, 256, (2, 48, 48, 2), dtype=np.uint8)
    >>> norb(images, np.random.default_rng(0)).shape
    (2, 32, 32, 2)
    """
    found = random_crop(jitter(images, random), random, size)
    return standardize(found) if standardized else found


def center(images, size):
    """Test images beside `cifar` and `norb`: the window in the middle, standardised.

    Args:
        images: uint8 array (B, H, W, C).
        size: int, of the window.

    Returns:
        float32 array (B, size, size, C).

    Examples:

    >>> center(np.zeros((2, 32, 32, 3), np.uint8), 24).shape
    (2, 24, 24, 3)
    """
    return standardize(center_crop(images, size))
