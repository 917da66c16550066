"""Placement, cropping and affine maps of images (B, H, W, C), and augmentations made of them.

`efficient` is that of Efficient-CapsNet (Mazzia et al., 2021). `cifar` and `norb` are those of
Sabour et al. (2017).
"""

import functools

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def place(images, size, top, left):
    """Place each image at (top, left) on a zero canvas; cut off what exceeds the canvas."""
    batch, height, width, channels = images.shape
    beyond = _beyond(top, size[0] - height), _beyond(left, size[1] - width)
    canvas = np.zeros(
        (batch, size[0] + 2 * beyond[0], size[1] + 2 * beyond[1], channels), images.dtype
    )
    windows = sliding_window_view(canvas, (height, width), axis=(1, 2), writeable=True)
    windows[np.arange(batch), top + beyond[0], left + beyond[1]] = np.moveaxis(images, -1, 1)
    return canvas[:, beyond[0] : beyond[0] + size[0], beyond[1] : beyond[1] + size[1]]


def _beyond(at, room):
    """Return the largest distance of positions `at` from the interval from zero to `room`."""
    at = np.asarray(at)
    return int(max(0, -at.min(), (at - room).max())) if at.size else 0


def cut(images, size, top, left):
    """Cut a window of `size` at (top, left) out of each image."""
    windows = sliding_window_view(images, size, axis=(1, 2))
    return np.moveaxis(windows[np.arange(len(images)), top, left], 1, -1)


def affine_matrix(rotation, shear, scale):
    """Return matrices (B, 2, 2) of (row, column) that scale, then shear, then rotate."""
    # Degrees counter-clockwise, columns to the right per row up, (vertical, horizontal) factors.
    angle = np.radians(rotation)
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.moveaxis(np.array([[cos, -sin], [sin, cos]]), -1, 0)
    lean = np.zeros_like(turn) + np.eye(2)
    lean[:, 1, 0] = -np.asarray(shear)
    return turn @ lean * np.asarray(scale)[:, np.newaxis]


def warp(images, matrices, translations, size=None):
    """Map images affinely about their centre; return float32 images (B, H', W', C)."""
    batch, height, width, channels = images.shape
    tall, wide = size or (height, width)
    # Pixel q = matrix (p - centre) + centre' + translation samples the image at p; outside it is 0.
    inverse = np.linalg.inv(matrices)
    down = np.arange(tall) - (tall - 1) / 2 - translations[:, :1]
    right = np.arange(wide) - (wide - 1) / 2 - translations[:, 1:]
    # With this dark border, no sample point needs a special case.
    framed = np.pad(images, ((0, 0), (1, 2), (1, 2), (0, 0)))
    index, weights = 0, []
    for axis, length in enumerate((height, width)):
        along = inverse[:, axis, 0, None] * down + (length + 1) / 2
        points = along[:, :, None] + (inverse[:, axis, 1, None] * right)[:, None]
        points = np.clip(points, 0, length + 1).astype(np.float32)
        whole = points.astype(np.intp)
        weights.append((points - whole.astype(np.float32))[..., None])
        index = index * framed.shape[2] + whole
    index += (np.arange(batch) * (framed.shape[1] * framed.shape[2]))[:, None, None]
    pixels = framed.reshape(-1, channels).astype(np.float32)
    below, beside = weights

    def between(index):
        # `take` is several times as fast as indexing for a single channel.
        left = pixels.take(index, axis=0)
        return left + beside * (pixels.take(index + 1, axis=0) - left)

    upper = between(index)
    return upper + below * (between(index + framed.shape[2]) - upper)


# Amounts follow a normal distribution with this deviation, clipped to stay below 1.
DEVIATION = 0.33
LARGEST = 0.9999


def efficient(images, random):
    """Apply `rotate`, `move_ink`, `squeeze` and `erase` in turn."""
    for change in (rotate, move_ink, squeeze, erase):
        images = change(images, random)
    return images


def _amounts(random, *shape):
    return np.clip(random.normal(0, DEVIATION, shape), -LARGEST, LARGEST)


def rotate(images, random, most=30.0):
    """Rotate half of the images by whole degrees below `most`, small angles more often."""
    degrees = np.trunc(most * _amounts(random, len(images)))
    turned = (random.random(len(images)) < 0.5) & (degrees != 0)
    many = np.count_nonzero(turned)
    matrices = affine_matrix(degrees[turned], np.zeros(many), np.ones((many, 2)))
    result = images.copy()
    result[turned] = np.rint(warp(images[turned], matrices, np.zeros((many, 2))))
    return result


def move_ink(images, random):
    """Shift the ink by whole pixels, small shifts more often, without losing any."""
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
    """Narrow each image by at most a quarter, small amounts more often."""
    width = images.shape[2]
    amounts = np.abs(_amounts(random, 2, len(images)))
    narrower = 1 + np.floor(amounts[0] * (width / 4)).astype(int)
    beside = np.floor(2 * amounts[1]).astype(int)
    matrices = np.stack([_squeezed(width, *pair) for pair in zip(narrower, beside)])
    squeezed = np.einsum("bhwc,bwv->bhvc", images, matrices, optimize=True)
    return np.rint(np.clip(squeezed, 0, 255)).astype(np.uint8)


@functools.lru_cache(maxsize=256)
def _squeezed(width, narrower, beside):
    """Return the matrix (width, width) that narrows a row of pixels and positions it."""
    narrow = width - narrower
    left = narrower // 2 + beside
    matrix = np.zeros((width, width), np.float32)
    matrix[:, left : left + narrow] = lanczos(width, narrow)
    return matrix


def lanczos(length, shorter, lobes=3):
    """Return the Lanczos resampling matrix (length, shorter), whose columns sum to one."""
    ratio = length / shorter
    centers = (np.arange(shorter) + 0.5) * ratio - 0.5
    x = (np.arange(length)[:, None] - centers) / ratio
    kernel = np.where(np.abs(x) < lobes, np.sinc(x) * np.sinc(x / lobes), 0.0)
    return kernel / kernel.sum(axis=0)


def erase(images, random, size=4):
    """Set a random square of `size` x `size` pixels of each image to zero."""
    rows, columns = (_stretch(random, len(images), n, size) for n in images.shape[1:3])
    inside = rows[:, :, None] & columns[:, None, :]
    return np.where(inside[..., None], np.uint8(0), images)


def _stretch(random, batch, length, size):
    """Return masks (batch, length) of random intervals of `size` pixels."""
    # As in the paper's code: at least `size` pixels from the start and 2 from the end.
    first = random.integers(size, length - size - 1, (batch, 1))
    along = np.arange(length)
    return (along >= first) & (along < first + size)


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
