"""Windows of whole pixels: images set into larger ones, and parts cut out of them."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def place(images, size, top, left):
    """Each image on a dark canvas, nothing interpolated; what lies beyond the canvas is lost.

    Args:
        images: Array (B, H, W, C).
        size: Pair (H', W') of the canvas, at least (H, W).
        top, left: Integer arrays (B,), where the image's first row and column go; may be below
            zero or too large.

    Returns:
        Array (B, H', W', C) of the images' dtype.

    Examples:

    >>> ones = np.ones((1, 1, 2, 1), np.uint8)
    >>> place(ones, (1, 4), np.array([0]), np.array([1]))[0, 0, :, 0].tolist()
    [0, 1, 1, 0]
    >>> place(ones, (1, 4), np.array([0]), np.array([-1]))[0, 0, :, 0].tolist()
    [1, 0, 0, 0]
    """
    batch, height, width, channels = images.shape
    beyond = _beyond(top, size[0] - height), _beyond(left, size[1] - width)
    canvas = np.zeros(
        (batch, size[0] + 2 * beyond[0], size[1] + 2 * beyond[1], channels), images.dtype
    )
    windows = sliding_window_view(canvas, (height, width), axis=(1, 2), writeable=True)
    windows[np.arange(batch), top + beyond[0], left + beyond[1]] = np.moveaxis(images, -1, 1)
    return canvas[:, beyond[0] : beyond[0] + size[0], beyond[1] : beyond[1] + size[1]]


def _beyond(at, room):
    """How far the farthest of positions `at` lies outside 0 .. room."""
    at = np.asarray(at)
    return int(max(0, -at.min(), (at - room).max())) if at.size else 0


def cut(images, size, top, left):
    """A window of each image.

    Args:
        images: Array (B, H, W, C).
        size: Pair (H', W') of the windows, at most (H, W).
        top, left: Integer arrays (B,), the window's first row and column.

    Returns:
        Array (B, H', W', C).

    Examples:

    >>> row = np.arange(4).reshape(1, 1, 4, 1)
    >>> cut(row, (1, 2), np.array([0]), np.array([1]))[0, 0, :, 0].tolist()
    [1, 2]
    """
    windows = sliding_window_view(images, size, axis=(1, 2))
    return np.moveaxis(windows[np.arange(len(images)), top, left], 1, -1)
