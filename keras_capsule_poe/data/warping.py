"""Affine maps of images, all of a batch at once, bilinear."""

import numpy as np


def affine_matrix(rotation, shear, scale):
    """The linear part of an affine map of (row, column): first scales, then shears, then turns.

    Args:
        rotation: Array (B,), degrees, counter-clockwise as seen.
        shear: Array (B,), columns that a row moves to the right for each row that it lies higher.
        scale: Array (B, 2), vertical and horizontal; above 1 enlarges.

    Returns:
        float64 array (B, 2, 2), to multiply a column (row, column) from the left.

    Examples:

    >>> quarter = affine_matrix(np.array([90.0]), np.zeros(1), np.ones((1, 2)))
    >>> np.round(quarter @ [0.0, 1.0]).tolist()  # what points right points up
    [[-1.0, 0.0]]
    """
    angle = np.radians(rotation)
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.moveaxis(np.array([[cos, -sin], [sin, cos]]), -1, 0)
    lean = np.zeros_like(turn) + np.eye(2)
    lean[:, 1, 0] = -np.asarray(shear)
    return turn @ lean * np.asarray(scale)[:, np.newaxis]


def warp(images, matrices, translations, size=None):
    """Images under affine maps about the centre: q = matrix (p - centre) + centre' + translation.

    A pixel q of the result takes the value of the point p, bilinear between the four pixels
    around it; outside an image all is dark.

    Args:
        images: Array (B, H, W, C) of integers or floats.
        matrices: Array (B, 2, 2) of (row, column), see `affine_matrix`, invertible.
        translations: Array (B, 2), rows down and columns to the right, in pixels.
        size: Pair (H', W') of the result, whose centre is centre'; `None`: that of the images.

    Returns:
        float32 array (B, H', W', C), in units of the images' pixels.

    Examples:

    >>> image = np.zeros((1, 3, 3, 1), np.uint8)
    >>> image[0, 1, 1] = 200
    >>> warp(image, np.eye(2)[np.newaxis], np.array([[0, 0.5]]))[0, 1, :, 0].tolist()
    [0.0, 100.0, 100.0]
    """
    batch, height, width, channels = images.shape
    tall, wide = size or (height, width)
    inverse = np.linalg.inv(matrices)
    down = np.arange(tall) - (tall - 1) / 2 - translations[:, :1]
    right = np.arange(wide) - (wide - 1) / 2 - translations[:, 1:]
    # One dark pixel before an image and two after: then no point needs a case of its own.
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
        # Several times as fast as indexing, where a row is one channel.
        left = pixels.take(index, axis=0)
        return left + beside * (pixels.take(index + 1, axis=0) - left)

    upper = between(index)
    return upper + below * (between(index + framed.shape[2]) - upper)
