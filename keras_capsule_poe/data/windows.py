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
