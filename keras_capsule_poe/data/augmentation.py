"""Augmentations: functions of images (B, H, W, C) and an `np.random.Generator`."""

import numpy as np

from keras_capsule_poe.data.windows import cut, place


def shift(images, random, most=2):
    """Shift each image by at most `most` whole pixels per axis; new pixels are dark."""
    by = random.integers(-most, most + 1, (2, len(images)))
    return place(images, images.shape[1:3], *by)


def random_crop(images, random, size):
    """Cut a random window (size, size) out of each image."""
    down, right = _room(images, size)
    top, left = (random.integers(0, room + 1, len(images)) for room in (down, right))
    return cut(images, (size, size), top, left)


def center_crop(images, size):
    """Cut the central window (size, size) out of each image, for testing."""
    top, left = (room // 2 for room in _room(images, size))
    return images[:, top : top + size, left : left + size]


def _room(images, size):
    """Return the rows and columns that remain outside a window."""
    height, width = images.shape[1:3]
    if not 1 <= size <= min(height, width):
        raise ValueError(
            f"`size` must be from 1 to the smaller side of the images. Received: size={size} of "
            f"images of {height}x{width}."
        )
    return height - size, width - size


def flip(images, random):
    """Mirror each image left to right or not, at random; not suitable for digits."""
    mirrored = random.integers(0, 2, len(images)).astype(bool)
    return np.where(mirrored[:, None, None, None], images[:, :, ::-1], images)


def jitter(images, random, brightness=63.0, contrast=(0.2, 1.8)):
    """Change the brightness of grey levels in [0, 255], then the contrast, without clipping."""
    each = (len(images), 1, 1, 1)
    brighter = images + random.uniform(-brightness, brightness, each).astype(np.float32)
    mean = brighter.mean(axis=(1, 2), keepdims=True)
    return (brighter - mean) * random.uniform(*contrast, each).astype(np.float32) + mean


def standardize(images):
    """Scale each image to zero mean and unit variance over all pixels and channels."""
    images = images.astype(np.float32)
    axes = (1, 2, 3)
    mean = images.mean(axis=axes, keepdims=True)
    # The lower bound on the deviation maps a uniform image to 0.
    least = np.float32(np.prod(images.shape[1:])) ** -0.5
    return (images - mean) / np.maximum(images.std(axis=axes, keepdims=True), least)


def cifar(images, random, size=24, standardized=True):
    """Augment CIFAR-10 as in Sabour et al.'s (2017) code: crop, mirror, jitter, standardize."""
    found = jitter(flip(random_crop(images, random, size), random), random)
    return standardize(found) if standardized else found


def norb(images, random, size=32, standardized=True):
    """Augment smallNORB as in Sabour et al.'s (2017) code: jitter, crop, standardize."""
    found = random_crop(jitter(images, random), random, size)
    return standardize(found) if standardized else found


def center(images, size):
    """Crop and standardize test images for a model trained with `cifar` or `norb`."""
    return standardize(center_crop(images, size))
