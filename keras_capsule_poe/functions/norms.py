"""Vector lengths without overflow, underflow or division by zero."""

import numpy as np
from keras import backend, ops


def at_least_float32(x):
    """Return `x` in float32 or float64; half precision cannot represent a sum of squares."""
    x = ops.convert_to_tensor(x)
    wide = backend.standardize_dtype(x.dtype) in ("float32", "float64")
    return x if wide else ops.cast(x, "float32")


def length(x, axis=-1, keepdims=False):
    """Return the Euclidean length |x|, exact from 1e-30 to 1e30 in float32.

    The gradient is the unit vector x/|x|, and zero at the zero vector.

    Args:
        x: Tensor (..., E).
        axis: int, the axis of the vector.
        keepdims: bool, whether to keep the reduced axis with size one.

    Returns:
        Tensor (...), or (..., 1) with `keepdims`; at least float32.

    Example:

    >>> round(float(length(np.array([3e-30, 4e-30])) * 1e30), 3)
    5.0
    """
    x = at_least_float32(x)
    # Divide by the largest entry, so that squares stay in range. `initial` is for empty batches.
    largest = ops.stop_gradient(ops.max(ops.abs(x), axis=axis, keepdims=True, initial=0.0))
    # One for the zero vector, at which the square root has no finite gradient; otherwise zero.
    one = ops.cast(ops.equal(largest, 0), largest.dtype)
    total = ops.sum(ops.square(x / (largest + one)), axis=axis, keepdims=True)
    root = largest * ops.sqrt(total + one)
    return root if keepdims else ops.squeeze(root, axis=axis)


def direction(x, axis=-1):
    """Return the unit vector x/|x|; the zero vector and its gradient stay zero.

    Args:
        x: Tensor (..., E).
        axis: int, the axis of the vector.

    Returns:
        Tensor of the shape of `x`; at least float32.

    Example:

    >>> np.asarray(direction(np.array([[3.0, 4.0], [0.0, 0.0]]))).round(3).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    x = at_least_float32(x)
    return over_length(x, length(x, axis=axis, keepdims=True))


def over_length(x, n):
    """Return `x/n` for lengths n `(..., 1)`; zero, with gradient zero, if n is zero."""
    return x / ops.where(ops.equal(n, 0), np.inf, n)


def folded(n):
    """Return `min(n, 1/n)`, which never overflows; `n/(1 + n^2)` is the same at n and 1/n."""
    return ops.minimum(n, 1 / ops.maximum(n, 1))
