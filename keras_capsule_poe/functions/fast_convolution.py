"""Convolutions with large filters by few multiplications: what a training step is made of."""

import functools
import math
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.toom_cook import strided

# What it takes to move a number to and from the products, in multiplications.
MOVED = 50


class Limits(NamedTuple):
    """How far multiplications are saved: for digits, and for time.

    `products` of a tile along an axis, and `outputs` that it makes, at most; and the share of the
    plain form's multiplications above which it is not worth it.
    """

    products: int
    outputs: int
    share: float


# Of float32, in which all is computed, the one keeps four to five digits, the other three to four.
SINGLE, ROUGH = Limits(8, 4, 0.6), Limits(10, 6, 0.6)
# Half precision has but three digits to lose, and a plain form that takes about half the time, on
# a processor that has it.
HALF = ROUGH._replace(share=0.3)


class Axis(NamedTuple):
    """One axis of a convolution: tiles of m outputs, n products each.

    `inputs` (n * tiles, size) takes the axis to the products' points, `taps` (n, K) the filters,
    and `outputs` (m, n) leads back to `tiles` times m outputs, of which `length` are there.
    """

    inputs: np.ndarray
    taps: np.ndarray
    outputs: np.ndarray
    tiles: int
    length: int

    @property
    def products(self):
        """How many products each tile takes, n."""
        return len(self.taps)


@functools.lru_cache
def axis(size, taps, stride, limits=SINGLE):
    """The `Axis` with the fewest products; or None, if none is accurate.

    Args:
        size: int, inputs.
        taps: int, of the filters.
        stride: int.
        limits: `Limits`.

    Examples:

    >>> found = axis(20, 9, 2)
    >>> found.tiles * found.products, found.length * 9  # products, and those of the plain form
    (26, 54)
    """
    length, longest = (size - taps) // stride + 1, -(-taps // stride)
    if length < 1:
        return None
    known = range(1, min(limits.outputs, length, limits.products + 1 - longest) + 1)
    found = [_axis(size, length, strided(m, taps, stride), stride) for m in known]
    return min(found, key=lambda each: each.tiles * each.products, default=None)


def _axis(size, length, algorithm, stride):
    n, m = algorithm.outputs.shape
    tiles, span = -(-length // m), algorithm.inputs.shape[1]
    # The last tile may reach beyond the inputs, which are zero there.
    inputs = np.zeros((n, tiles, max(size, stride * m * (tiles - 1) + span)))
    for tile in range(tiles):
        first = stride * m * tile
        inputs[:, tile, first : first + span] = algorithm.inputs
    inputs = inputs[..., :size].reshape(n * tiles, size)
    return Axis(inputs, algorithm.taps, algorithm.outputs.T, tiles, length)


class FastConvolution:
    """A convolution without padding, and its transpose, of maps (B, H, W, C) of a fixed size.

    As Y = Aᵀ [(G k Gᵀ) * (Bᵀ x B)] A along both axes, tile by tile: 9x9 filters of stride 2 take a
    quarter of the multiplications and become one large product for each of 169 points, which a
    processor does at its best rate. Float32 keeps four to five digits, or those of half precision,
    see `Limits`.

    Args:
        rows, columns: `Axis`.

    Examples:

    >>> fast = fast_convolution((20, 20), (9, 9, 64, 96), strides=2)
    >>> x, kernel = np.ones((3, 20, 20, 64), "float32"), np.ones((9, 9, 64, 96), "float32")
    >>> fast(x, kernel).shape, fast.transpose(fast(x, kernel), kernel).shape
    (TensorShape([3, 6, 6, 96]), TensorShape([3, 20, 20, 64]))
    """

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns

    def share(self, channels, filters):
        """What it takes, as a share of the plain form's multiplications."""
        axes = (self.rows, self.columns)
        own = math.prod(each.tiles * each.products for each in axes)
        plain = math.prod(each.length * each.taps.shape[1] for each in axes)
        return own / plain * (1 + MOVED / channels + MOVED / filters)

    def __call__(self, x, kernel):
        """Maps (B, h, w, O) of maps x (B, H, W, C) and filters (K, K, C, O)."""
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
        """Maps (B, H, W, C) of maps y (B, h, w, O): the gradient of `<y, self(x, kernel)>` in x."""
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
        """The filters at the points, (n * n, C, O)."""
        u = _both(self.rows.taps, self.columns.taps, kernel)
        return ops.reshape(u, (-1, *kernel.shape[2:]))


def _both(rows, columns, x):
    """Matrices (P, H) and (Q, W) along the first two axes of x (H, W, ...): (P, Q, -1)."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    x = ops.matmul(rows.astype(dtype), ops.reshape(x, (x.shape[0], -1)))
    return ops.matmul(columns.astype(dtype), ops.reshape(x, (len(rows), columns.shape[1], -1)))


def fast_convolution(sizes, kernel_shape, strides=1, limits=SINGLE):
    """The `FastConvolution` of maps of a fixed size, or None where none is accurate or pays.

    Args:
        sizes: (H, W) of the maps, padded.
        kernel_shape: (K, K, C, O) of the filters.
        strides: int.
        limits: `Limits`.

    Examples:

    >>> fast_convolution((28, 28), (9, 9, 1, 256)) is None  # one channel
    True
    """
    sides = zip(sizes, kernel_shape[:2], strict=True)
    axes = [axis(size, taps, strides, limits) for size, taps in sides]
    if None in axes:
        return None
    found = FastConvolution(*axes)
    return found if found.share(*kernel_shape[2:]) <= limits.share else None
