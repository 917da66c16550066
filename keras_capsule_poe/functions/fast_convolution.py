"""Convolutions with large filters by few multiplications, for training steps."""

import functools
import math
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.toom_cook import strided

# Cost to transform a number to and from the products, in multiplications.
MOVED = 50


class Limits(NamedTuple):
    """Maximum products and outputs per tile and axis, and cost relative to the plain form."""

    products: int
    outputs: int
    share: float


# In float32, SINGLE keeps 4-5 digits and ROUGH keeps 3-4.
SINGLE, ROUGH = Limits(8, 4, 0.6), Limits(10, 6, 0.6)
# Half precision has only 3 digits, and a plain form of about half the time on CPUs with support.
HALF = ROUGH._replace(share=0.3)


class Axis(NamedTuple):
    """One axis of a convolution: tiles of m outputs with n products each."""

    # Shapes (n * tiles, size), (n, K) and (m, n); `length` of the outputs are kept.
    inputs: np.ndarray
    taps: np.ndarray
    outputs: np.ndarray
    tiles: int
    length: int

    @property
    def products(self):
        """Number n of products per tile."""
        return len(self.taps)


@functools.lru_cache
def axis(size, taps, stride, limits=SINGLE):
    """Return the `Axis` with the fewest products, or None if none is accurate."""
    length, longest = (size - taps) // stride + 1, -(-taps // stride)
    if length < 1:
        return None
    known = range(1, min(limits.outputs, length, limits.products + 1 - longest) + 1)
    found = [_axis(size, length, strided(m, taps, stride), stride) for m in known]
    return min(found, key=lambda each: each.tiles * each.products, default=None)


def _axis(size, length, algorithm, stride):
    n, m = algorithm.outputs.shape
    tiles, span = -(-length // m), algorithm.inputs.shape[1]
    # The last tile may extend beyond the inputs, as if they were padded with zeros.
    inputs = np.zeros((n, tiles, max(size, stride * m * (tiles - 1) + span)))
    for tile in range(tiles):
        first = stride * m * tile
        inputs[:, tile, first : first + span] = algorithm.inputs
    inputs = inputs[..., :size].reshape(n * tiles, size)
    return Axis(inputs, algorithm.taps, algorithm.outputs.T, tiles, length)


class FastConvolution:
    """Y = Aᵀ [(G k Gᵀ) * (Bᵀ x B)] A for tiles of maps (B, H, W, C), without padding."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns

    def share(self, channels, filters):
        """Return the cost as a share of the plain form's multiplications."""
        axes = (self.rows, self.columns)
        own = math.prod(each.tiles * each.products for each in axes)
        plain = math.prod(each.length * each.taps.shape[1] for each in axes)
        return own / plain * (1 + MOVED / channels + MOVED / filters)

    def __call__(self, x, kernel):
        """Return maps (B, h, w, O) of maps x (B, H, W, C) and filters (K, K, C, O)."""
        rows, columns = self.rows, self.columns
        m, n = rows.outputs.shape
        m2, n2 = columns.outputs.shape
        x = ops.transpose(x, (1, 2, 0, 3))
        x = _both(rows.inputs, columns.inputs, x)
        x = ops.reshape(x, (n, rows.tiles, n2, columns.tiles, -1))
        x = ops.reshape(ops.transpose(x, (0, 2, 1, 3, 4)), (n * n2, -1, kernel.shape[2]))
        y = ops.reshape(ops.matmul(x, self._points(kernel)), (n, n2, -1))
        y = _both(rows.outputs, columns.outputs, y)
        y = ops.reshape(y, (m, m2, rows.tiles, columns.tiles, -1, kernel.shape[3]))
        y = ops.transpose(y, (4, 2, 0, 3, 1, 5))
        y = ops.reshape(y, (-1, rows.tiles * m, columns.tiles * m2, kernel.shape[3]))
        return y[:, : rows.length, : columns.length]

    def transpose(self, y, kernel):
        """Return the gradient of `<y, self(x, kernel)>` in x: (B, H, W, C), from y (B, h, w, O)."""
        rows, columns = self.rows, self.columns
        m, n = rows.outputs.shape
        m2, n2 = columns.outputs.shape
        more = [each.tiles * len(each.outputs) - each.length for each in (rows, columns)]
        y = ops.pad(y, ((0, 0), (0, more[0]), (0, more[1]), (0, 0))) if any(more) else y
        y = ops.reshape(y, (-1, rows.tiles, m, columns.tiles, m2, kernel.shape[3]))
        y = ops.reshape(ops.transpose(y, (2, 4, 1, 3, 0, 5)), (m, m2, -1))
        y = _both(rows.outputs.T, columns.outputs.T, y)
        points = ops.swapaxes(self._points(kernel), -1, -2)
        x = ops.matmul(ops.reshape(y, (n * n2, -1, kernel.shape[3])), points)
        x = ops.reshape(x, (n, n2, rows.tiles, columns.tiles, -1))
        x = ops.reshape(ops.transpose(x, (0, 2, 1, 3, 4)), (n * rows.tiles, n2 * columns.tiles, -1))
        x = _both(rows.inputs.T, columns.inputs.T, x)
        x = ops.reshape(x, (*x.shape[:2], -1, kernel.shape[2]))
        return ops.transpose(x, (2, 0, 1, 3))

    def _points(self, kernel):
        """Return the filters at the points, of shape (n * n, C, O)."""
        u = _both(self.rows.taps, self.columns.taps, kernel)
        return ops.reshape(u, (-1, *kernel.shape[2:]))


def _both(rows, columns, x):
    """Apply matrices (P, H) and (Q, W) to the first two axes of x (H, W, ...): (P, Q, -1)."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    x = ops.matmul(rows.astype(dtype), ops.reshape(x, (x.shape[0], -1)))
    return ops.matmul(columns.astype(dtype), ops.reshape(x, (len(rows), columns.shape[1], -1)))


def fast_convolution(sizes, kernel_shape, strides=1, limits=SINGLE):
    """Return the `FastConvolution` for maps of fixed size, or None if it does not pay."""
    sides = zip(sizes, kernel_shape[:2], strict=True)
    axes = [axis(size, taps, strides, limits) for size, taps in sides]
    if None in axes:
        return None
    found = FastConvolution(*axes)
    return found if found.share(*kernel_shape[2:]) <= limits.share else None
