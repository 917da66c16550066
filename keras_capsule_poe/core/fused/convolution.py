"""Correlations with few multiplications: evaluate, multiply, interpolate (Toom-Cook, Winograd)."""

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.core.numerics import custom_gradient, on_processor

# Small numbers first, because powers of large ones and their inverses cost digits.
POINTS = tuple(Fraction(p) for p in ("0", "1", "-1", "2", "-2", "1/2", "-1/2", "3/4", "-3/4"))
# One more point is at infinity. Float32 keeps 4-5 digits with 8 products, 3-4 digits with 10.
MOST_PRODUCTS = len(POINTS) + 1


class Algorithm(NamedTuple):
    """Matrices A (n, m), G (n, r) and B (n, span) of y = Aᵀ ((G k) * (B d)), exact in float64."""

    outputs: np.ndarray
    taps: np.ndarray
    inputs: np.ndarray


@functools.lru_cache
def toom_cook(outputs, taps):
    """Return the `Algorithm` of y_o = Σ_s k_s d_{o+s}, with outputs + taps - 1 products."""
    # A product of polynomials with m and r coefficients follows from its values at m + r - 1
    # points. Its transpose is a correlation (Winograd, 1980; Lavin & Gray, 2015).
    n = outputs + taps - 1
    if min(outputs, taps) < 1 or n > MOST_PRODUCTS:
        raise ValueError(
            f"`outputs` and `taps` must be at least 1, and their sum at most {MOST_PRODUCTS + 1}. "
            f"Received: outputs={outputs}, taps={taps}"
        )
    points = POINTS[: n - 1]
    # Rows of the interpolation: Lagrange polynomials, and for infinity the one with all roots.
    rows = [_lagrange(points, k) for k in range(n - 1)] + [_with_roots(points)]
    values = [_powers(points, length) for length in (outputs, taps)]
    # The taps take the scales, because there are fewest of them.
    scales = [Fraction(2) ** round(math.log2(max(map(abs, row)))) for row in rows]
    return Algorithm(
        np.array(values[0], float),
        np.array([[s * v for v in row] for s, row in zip(scales, values[1], strict=True)], float),
        np.array([[c / s for c in row] for s, row in zip(scales, rows, strict=True)], float),
    )


def strided(outputs, taps, stride=1):
    """Return the `Algorithm` of y_o = Σ_s k_s d_{stride·o+s}, one `toom_cook` per residue class."""
    span, parts = stride * (outputs - 1) + taps, []
    for first in range(min(stride, taps)):
        part = toom_cook(outputs, len(range(first, taps, stride)))
        taps_of, inputs_of = np.zeros((len(part.taps), taps)), np.zeros((len(part.taps), span))
        taps_of[:, first::stride] = part.taps
        inputs_of[:, range(first, span, stride)[: part.inputs.shape[1]]] = part.inputs
        parts.append(Algorithm(part.outputs, taps_of, inputs_of))
    return Algorithm(*(np.concatenate(matrices) for matrices in zip(*parts, strict=True)))


def _with_roots(roots):
    """Return the coefficients of Π (x - root), the lowest first."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [a - root * b for a, b in zip(shifted, [*found, Fraction(0)], strict=True)]
    return found


def _lagrange(points, k):
    """Return the coefficients of the k-th Lagrange polynomial of the points, padded."""
    others = [point for point in points if point != points[k]]
    scale = math.prod((points[k] - point for point in others), start=Fraction(1))
    return [c / scale for c in _with_roots(others)] + [Fraction(0)]


def _powers(points, length):
    """Return the monomials of degrees below `length`, at the points and at infinity."""
    finite = [[point**degree for degree in range(length)] for point in points]
    return [*finite, [Fraction(degree == length - 1) for degree in range(length)]]


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


# Minimum number of filter taps for which this pays.
LEAST_TAPS = 25


def pays(kernel_shape, strides):
    """Return whether `lay_down` is faster than a library and takes little memory."""
    rows, columns, channels, filters = kernel_shape
    taps = rows * columns
    return strides == 1 and taps >= LEAST_TAPS and taps * channels <= filters


def lay_down(y, kernel):
    """Transposed convolution of stride one, from y (B, h, w, O) to (B, h + K - 1, w + L - 1, C)."""
    taps, (height, width) = kernel.shape[:2], y.shape[1:3]
    channels, filters = kernel.shape[2:]

    @custom_gradient
    def laid_down(y, kernel):
        flat, rows = ops.reshape(y, (-1, filters)), ops.reshape(kernel, (-1, filters))
        parts = ops.matmul(rows, ops.transpose(flat))
        parts = ops.reshape(parts, (*taps, channels, -1, height, width))
        parts = _added(ops.moveaxis(parts, 1, 0), axis=-1)
        x = ops.transpose(_added(parts, axis=-2), (1, 2, 3, 0))

        def gradient(upstream):
            seen = ops.transpose(upstream, (3, 0, 1, 2))
            seen = ops.stack([seen[..., k : k + width] for k in range(taps[1])])
            seen = ops.stack([seen[..., k : k + height, :] for k in range(taps[0])])
            seen = ops.reshape(seen, (rows.shape[0], -1))
            in_kernel = ops.reshape(ops.matmul(seen, flat), kernel.shape)
            in_y = ops.conv(upstream, kernel, padding="valid", data_format="channels_last")
            return in_y, in_kernel

        return (x,), gradient

    # The cast makes a variable a tensor; a custom gradient does not treat it as an argument.
    return laid_down(y, ops.cast(kernel, y.dtype))[0]


def _added(parts, axis):
    """Return the sum of parts (K, ...), with the k-th shifted by k along an axis."""
    most = parts.shape[0] - 1
    before = [[0, 0]] * (len(parts.shape) - 1)

    def moved(k):
        around = list(before)
        around[axis] = [k, most - k]
        return ops.pad(parts[k], around)

    total = moved(0)
    for k in range(1, most + 1):
        total = total + moved(k)
    return total


def convolve(x, kernel, strides=1, padding="valid", fast=False, limits=None):
    """Convolve x (B, H, W, C) with (K, K, C, O); `fast` uses few multiplications if that pays."""
    x, kernel = ops.convert_to_tensor(x), ops.convert_to_tensor(kernel)
    before, after = _padding(x.shape[1:3], kernel.shape[:2], strides, padding)
    sizes = [a + size + b for a, size, b in zip(before, x.shape[1:3], after) if size]
    quick = _quick(x, kernel.shape, sizes, strides, limits) if fast else None
    if quick is None:
        return ops.conv(x, kernel, strides=strides, padding=padding, data_format="channels_last")
    around = ((0, 0), *zip(before, after), (0, 0))
    return _in_full(quick, ops.pad(x, around) if any(map(sum, around)) else x, kernel)


def transposed(y, kernel, strides=1, fast=False, limits=None):
    """Return maps (B, H, W, C) of y (B, h, w, O): the transpose of `convolve` without padding."""
    y, kernel = ops.convert_to_tensor(y), ops.convert_to_tensor(kernel)
    if fast and None not in y.shape[1:3] and on_processor() and pays(kernel.shape, strides):
        return _in_full(lay_down, y, kernel)
    sizes = [strides * (size - 1) + k for size, k in zip(y.shape[1:3], kernel.shape[:2]) if size]
    quick = _quick(y, kernel.shape, sizes, strides, limits) if fast else None
    if quick is None or strides > min(kernel.shape[:2]):
        return ops.conv_transpose(
            y, kernel, strides=strides, padding="valid", data_format="channels_last"
        )
    return _in_full(quick.transpose, y, kernel)


def _quick(x, kernel_shape, sizes, strides, limits):
    """Return the `FastConvolution` for tensors like x of known sizes, or None."""
    if len(sizes) != 2 or not on_processor():
        return None
    limits = limits or (HALF if _is_half(x) else SINGLE)
    return fast_convolution(tuple(sizes), tuple(kernel_shape), strides, limits)


def _is_half(x):
    return keras.backend.standardize_dtype(x.dtype) in ("bfloat16", "float16")


def _in_full(function, x, kernel):
    """Compute half precision in float32, because it has too few digits for the sums."""
    if not _is_half(x):
        return function(x, kernel)
    y = function(ops.cast(x, "float32"), ops.cast(kernel, "float32"))
    return ops.cast(y, x.dtype)


def _padding(sizes, taps, strides, padding):
    """Return the zeros before and after each axis; an odd zero goes to the end."""
    if padding == "valid" or None in sizes:
        return (0, 0), (0, 0)
    most = [max((-(-n // strides) - 1) * strides + k - n, 0) for n, k in zip(sizes, taps)]
    return tuple(total // 2 for total in most), tuple(total - total // 2 for total in most)
