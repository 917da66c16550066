"""Lengths and directions of vectors, compiled functions, and sizes of tensors."""

import functools

import keras
import numpy as np
from keras import backend, ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.arguments import one_of as one_of
from keras_capsule_poe.core.arguments import real_number as real_number
from keras_capsule_poe.core.arguments import share as share
from keras_capsule_poe.core.arguments import whole_number as whole_number


def at_least_float32(x):
    """Return `x` in float32 or float64; half precision cannot represent a sum of squares."""
    x = ops.convert_to_tensor(x)
    wide = backend.standardize_dtype(x.dtype) in ("float32", "float64")
    return x if wide else ops.cast(x, "float32")


def largest(x):
    """Return the int32 index (...) of the largest value in the last axis of x (..., K)."""
    # Not `ops.argmax`, whose treatment of -0.0 has no form in ONNX and LiteRT.
    return ops.top_k(x, 1)[1][..., 0]


def length(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
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


def direction(x: Tensor, axis: int = -1) -> Tensor:
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


def custom_gradient(function):
    """Wrap a function that returns (tuple of results, gradient); first derivatives only."""
    # Keras passes several upstream gradients differently on each backend, and Torch gets only one.
    if keras.backend.backend() == "torch":
        return _on_torch(function)

    @ops.custom_gradient
    def differentiable(*arguments):
        results, gradient = function(*arguments)

        def flat(*upstream):
            return gradient(*keras.tree.flatten(upstream)[-len(results) :])

        return results, flat

    return differentiable


def _on_torch(function):
    import torch
    from torch.autograd.function import once_differentiable

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(context, *arguments):
            results, context.gradient = function(*arguments)
            return results

        @staticmethod
        @once_differentiable
        def backward(context, *upstream):
            return tuple(context.gradient(*upstream))

    return Function.apply


def compiled(function):
    """Return a function of tensors as a graph of the backend, or unchanged if it has no graphs."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, autograph=False, reduce_retracing=True)
    if backend == "jax":
        import jax

        return jax.jit(function)
    return function


# Accelerators need larger tensors than a CPU's cache holds, to keep all their units busy.
ELSEWHERE = 32
# Approximate size of an intermediate tensor on a CPU: 8 MiB in float32.
BLOCK = 1 << 21


@functools.cache
def on_processor():
    """Return whether the backend computes on a CPU."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return not any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))
    if backend == "jax":
        import jax

        return jax.default_backend() == "cpu"
    if backend == "torch":
        import torch

        return not torch.cuda.is_available()
    return False


def at_once(numbers):
    """Return the size for an intermediate tensor, given the size that suits a CPU's cache."""
    return numbers if on_processor() else ELSEWHERE * numbers
