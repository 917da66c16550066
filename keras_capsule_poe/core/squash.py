"""Squashing of capsules, and its exact inverse."""

import numpy as np
from keras import backend, ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.numerics import at_least_float32, folded, length, over_length


def squash(z: Tensor, axis: int = -1) -> Tensor:
    """Shrink a vector to a length below one: `|z|^2/(1 + |z|^2) * z/|z|`.

    The length of the result is the probability that the capsule is on, `sigmoid(log |z|^2)`.
    Values and gradients are finite, also at the zero vector.

    Args:
        z: Tensor (..., E), any real values.
        axis: int, the axis of the vector.

    Returns:
        Tensor of the shape and dtype of `z` (float32 for integers), of length in [0, 1).

    Example:

    >>> np.asarray(squash(np.array([[1.0, 0.0], [0.0, 3.0]]))).round(3).tolist()
    [[0.5, 0.0], [0.0, 0.9]]

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Equation 1
    - [Hauser, 2019](https://arxiv.org/abs/1907.11643)
    """
    z = _floating(z)
    wide = at_least_float32(z)
    n = length(wide, axis=axis, keepdims=True)
    return ops.cast(squashed_length(n) * over_length(wide, n), z.dtype)


def _floating(z):
    z = ops.convert_to_tensor(z)
    return z if backend.is_float_dtype(z.dtype) else ops.cast(z, "float32")


def squashed_length(n):
    """Return `n^2/(1 + n^2)`, the length of a squashed vector of length n."""
    s2 = ops.square(folded(n))
    return ops.where(n > 1, 1, s2) / (1 + s2)


def exponential_squash(z: Tensor, axis: int = -1) -> Tensor:
    """Shrink a vector to a length below one: `(1 - exp(-|z|)) z/|z|`.

    Short vectors keep their length, while `squash` squares it.

    Args:
        z: Tensor (..., E), any real values.
        axis: int, the axis of the vector.

    Returns:
        Tensor of the shape and dtype of `z` (float32 for integers), of length in [0, 1).

    Example:

    >>> np.asarray(exponential_squash(np.array([[0.001, 0.0], [0.0, 3.0]]))).round(3).tolist()
    [[0.001, 0.0], [0.0, 0.95]]

    Reference:

    - [Mazzia et al., 2021](https://doi.org/10.1038/s41598-021-93977-0), Equation 3
    """
    z = _floating(z)
    wide = at_least_float32(z)
    n = length(wide, axis=axis, keepdims=True)
    return ops.cast(-ops.expm1(-n) * over_length(wide, n), z.dtype)


def unsquash(x: Tensor, axis: int = -1) -> Tensor:
    """Return the inverse of `squash`: `sqrt(|x|/(1 - |x|)) * x/|x|`.

    Lengths are limited to `1 - 2 epsilon` of the dtype. A saturated capsule thus gives a long
    vector instead of an infinite one.

    Args:
        x: Tensor (..., E) of length below one.
        axis: int, the axis of the vector.

    Returns:
        Tensor of the shape and dtype of `x`.

    Example:

    >>> np.asarray(unsquash(squash(np.array([[1.0, 0.0]])))).round(3).tolist()
    [[1.0, 0.0]]
    """
    x = ops.convert_to_tensor(x)
    wide = at_least_float32(x)
    info = np.finfo(backend.standardize_dtype(wide.dtype))
    n = length(wide, axis=axis, keepdims=True)
    # The gradient grows as 1/sqrt|x|; a minimum length keeps it finite.
    n_held = ops.maximum(n, float(info.tiny) ** 0.75)
    n_below_one = ops.minimum(n_held, 1 - 2 * float(info.eps))
    root = ops.sqrt(n_below_one / (1 - n_below_one))
    return ops.cast(root * (wide / n_held), x.dtype)
