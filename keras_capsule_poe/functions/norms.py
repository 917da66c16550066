"""Vector lengths that neither overflow, underflow nor divide by zero."""

import numpy as np
from keras import backend, ops


def at_least_float32(x):
    """`x` as a float tensor of 32 bits or more: half precision cannot hold a sum of squares."""
    x = ops.convert_to_tensor(x)
    wide = backend.standardize_dtype(x.dtype) in ("float32", "float64")
    return x if wide else ops.cast(x, "float32")


def length(x, axis=-1, keepdims=False):
    """Euclidean length |x|, right from 1e-30 to 1e30 in float32.

    Dividing by the largest entry first keeps the squares in range; the gradient is the unit
    vector x/|x|, and zero at the zero vector.

    Args:
        x: Tensor (..., E).
        axis: The axis that holds the vector.
        keepdims: Whether the reduced axis stays, with size 1.

    Returns:
        Tensor (...), or (..., 1) with `keepdims`; at least float32.

    Examples:

    >>> round(float(length(np.array([3e-30, 4e-30])) * 1e30), 3)
    5.0
    """
    x = at_least_float32(x)
    # With a first value, an empty batch has a largest number, too.
    largest = ops.stop_gradient(ops.max(ops.abs(x), axis=axis, keepdims=True, initial=0.0))
    # One for the zero vector, where the square root has no slope, and else zero.
    one = ops.cast(ops.equal(largest, 0), largest.dtype)
    total = ops.sum(ops.square(x / (largest + one)), axis=axis, keepdims=True)
    root = largest * ops.sqrt(total + one)
    return root if keepdims else ops.squeeze(root, axis=axis)


def direction(x, axis=-1):
    """Unit vector x/|x|; the zero vector stays zero, with gradient zero.

    Args:
        x: Tensor (..., E).
        axis: The axis that holds the vector.

    Returns:
        Tensor of the shape of `x`; at least float32.

    Examples:

    >>> np.asarray(direction(np.array([[3.0, 4.0], [0.0, 0.0]]))).round(3).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    x = at_least_float32(x)
    return over_length(x, length(x, axis=axis, keepdims=True))


def over_length(x, n):
    """x/n of vectors and their lengths (..., 1); zero, with gradient zero, where n is zero."""
    return x / ops.where(ops.equal(n, 0), np.inf, n)


def folded(n):
    """min(n, 1/n), which lies in [0, 1] and never overflows: n/(1+n^2) is the same at n and 1/n."""
    return ops.minimum(n, 1 / ops.maximum(n, 1))
