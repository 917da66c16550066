"""The changes of digits that Efficient-CapsNet is trained with: turned, moved, squeezed, erased.

Pure functions of uint8 images `(B, H, W, C)` and an `np.random.Generator`, as those of
`augmentation`; grey levels are rounded. Sizes in pixels are those of 28x28 images.
"""

import functools

import numpy as np

from keras_capsule_poe.data.warping import affine_matrix, warp
from keras_capsule_poe.data.windows import place

# Amounts are normal with this deviation, and never as large as one.
DEVIATION = 0.33
LARGEST = 0.9999


def efficient(images, random):
    """`rotate`, `move_ink`, `squeeze` and `erase`, one after another.

    Args:
        images: uint8 array (B, H, W, C).
        random: `np.random.Generator`.

    Returns:
        uint8 array of the same shape.

    Examples:

    >>> digits = np.zeros((2, 28, 28, 1), np.uint8)
    >>> efficient(digits, np.random.default_rng(0)).shape
    (2, 28, 28, 1)

    Reference:

    - [Mazzia et al., 2021](https://arxiv.org/abs/2101.12491), whose code is followed
    """
    for change in (rotate, move_ink, squeeze, erase):
        images = change(images, random)
    return images


def _amounts(random, *shape):
    return np.clip(random.normal(0, DEVIATION, shape), -LARGEST, LARGEST)


def rotate(images, random, most=30.0):
    """Turns half of the images by whole degrees, small angles more often, bilinear.

    Args:
        images: uint8 array (B, H, W, C).
        random: `np.random.Generator`.
        most: float, degrees that no image is turned by, to either side.

    Returns:
        uint8 array of the same shape.

    Examples:

    >>> rotate(np.zeros((2, 28, 28, 1), np.uint8), np.random.default_rng(0)).shape
    (2, 28, 28, 1)
    """
    degrees = np.trunc(most * _amounts(random, len(images)))
    turned = (random.random(len(images)) < 0.5) & (degrees != 0)
    many = np.count_nonzero(turned)
    matrices = affine_matrix(degrees[turned], np.zeros(many), np.ones((many, 2)))
    result = images.copy()
    result[turned] = np.rint(warp(images[turned], matrices, np.zeros((many, 2))))
    return result


def move_ink(images, random):
    """Moves the ink by whole pixels, up to the edges of the image, small shifts more often.

    Args:
        images: uint8 array (B, H, W, C).
        random: `np.random.Generator`.

    Returns:
        uint8 array of the same shape; no ink is lost.

    Examples:

    >>> image = np.zeros((1, 3, 3, 1), np.uint8)
    >>> image[0, 1, 1] = 255
    >>> int(move_ink(image, np.random.default_rng(0)).sum())
    255
    """
    ink = images.any(axis=-1)
    by = []
    for axis in (1, 2):
        along = ink.any(axis=3 - axis)
        before, after = along.argmax(axis=1), along[:, ::-1].argmax(axis=1)
        amount = np.abs(_amounts(random, len(images)))
        forward = random.integers(0, 2, len(images)).astype(bool)
        steps = np.where(forward, np.floor(amount * (1 + after)), -np.ceil(amount * before))
        by.append(steps.astype(int))
    return place(images, images.shape[1:3], *by)


def squeeze(images, random):
    """Makes each image narrower by up to a quarter, small amounts more often.

    It stays in the middle or goes one column to the right. Resampled by a Lanczos kernel.

    Args:
        images: uint8 array (B, H, W, C).
        random: `np.random.Generator`.

    Returns:
        uint8 array of the same shape.

    Examples:

    >>> squeeze(np.zeros((2, 28, 28, 1), np.uint8), np.random.default_rng(0)).shape
    (2, 28, 28, 1)
    """
    width = images.shape[2]
    amounts = np.abs(_amounts(random, 2, len(images)))
    narrower = 1 + np.floor(amounts[0] * (width / 4)).astype(int)
    beside = np.floor(2 * amounts[1]).astype(int)
    matrices = np.stack([_squeezed(width, *pair) for pair in zip(narrower, beside)])
    squeezed = np.einsum("bhwc,bwv->bhvc", images, matrices, optimize=True)
    return np.rint(np.clip(squeezed, 0, 255)).astype(np.uint8)


@functools.lru_cache(maxsize=256)
def _squeezed(width, narrower, beside):
    """Matrix (width, width) from a row of pixels to that row, narrower and moved to its place."""
    narrow = width - narrower
    left = narrower // 2 + beside
    matrix = np.zeros((width, width), np.float32)
    matrix[:, left : left + narrow] = lanczos(width, narrow)
    return matrix


def lanczos(length, shorter, lobes=3):
    """The matrix that resamples rows of pixels to fewer by a Lanczos kernel, widened to match.

    Args:
        length: int, pixels of a row.
        shorter: int, pixels of the result, from 1 to `length`.
        lobes: int, zeros of the kernel on each side.

    Returns:
        float64 array (length, shorter), to multiply a row from the right. Its columns sum to one.

    Examples:

    >>> lanczos(4, 4).round(6).tolist() == np.eye(4).tolist()
    True
    """
    ratio = length / shorter
    centers = (np.arange(shorter) + 0.5) * ratio - 0.5
    x = (np.arange(length)[:, None] - centers) / ratio
    kernel = np.where(np.abs(x) < lobes, np.sinc(x) * np.sinc(x / lobes), 0.0)
    return kernel / kernel.sum(axis=0)


def erase(images, random, size=4):
    """Makes a small square of each image dark, anywhere but at the upper and left edges.

    Args:
        images: uint8 array (B, H, W, C).
        random: `np.random.Generator`.
        size: int, pixels of a side; the square begins at row and column `size` or later, and at
            least `size + 1` pixels before the end, as in the code that is followed.

    Returns:
        uint8 array of the same shape.

    Examples:

    >>> erased = erase(np.ones((1, 28, 28, 1), np.uint8), np.random.default_rng(0))
    >>> int(erased.size - erased.sum())
    16
    """
    rows, columns = (_stretch(random, len(images), n, size) for n in images.shape[1:3])
    inside = rows[:, :, None] & columns[:, None, :]
    return np.where(inside[..., None], np.uint8(0), images)


def _stretch(random, batch, length, size):
    """Which pixels of a side lie in a stretch of `size` at a random place: (batch, length)."""
    first = random.integers(size, length - size - 1, (batch, 1))
    along = np.arange(length)
    return (along >= first) & (along < first + size)
