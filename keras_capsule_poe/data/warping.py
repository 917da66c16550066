"""Whole-pixel placement and cropping of images."""

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
