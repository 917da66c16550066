"""Lengths and squashes of vectors, random numbers, compiled functions, and sizes of tensors."""

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
    root = ops.multiply(*_length_factors(at_least_float32(x), axis))
    return root if keepdims else ops.squeeze(root, axis=axis)


def _length_factors(x, axis):
    """Return two factors (..., 1) of the lengths of x (..., E): the largest entry, and the rest."""
    # Divide by the largest entry, so that squares stay in range. `initial` is for empty batches.
    largest = ops.stop_gradient(ops.max(ops.abs(x), axis=axis, keepdims=True, initial=0.0))
    # One for the zero vector, at which the square root has no finite gradient; otherwise zero.
    one = ops.cast(ops.equal(largest, 0), largest.dtype)
    total = ops.sum(ops.square(x / (largest + one)), axis=axis, keepdims=True)
    return largest, ops.sqrt(total + one)


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


def _finite_length(x, axis):
    """Return n and r (..., 1): x is as long as n/r, and r is 1 unless that length is infinite."""
    largest, factor = _length_factors(x, axis)
    n, most = largest * factor, float(np.finfo(backend.standardize_dtype(x.dtype)).max)
    is_too_long = ops.logical_and(n > most, largest <= most)
    rest = ops.stop_gradient(most / ops.maximum(largest, 1) / factor)
    return ops.where(is_too_long, most, n), ops.where(is_too_long, rest, 1)


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

        # TensorFlow warns of tracing by the code of a function, which several models share: a
        # partial function counts alone.
        graph = functools.partial(function)
        return tf.function(graph, autograph=False, reduce_retracing=True)
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
    return _with_length(z, axis, squashed_length)


def _with_length(z, axis, length_of):
    """Return z with vectors of the length `length_of(n)` in place of n."""
    z = ops.convert_to_tensor(z)
    wide = at_least_float32(z)
    n, rest = _finite_length(wide, axis)
    x = length_of(n) * rest * over_length(wide, n)
    return ops.cast(x, z.dtype) if backend.is_float_dtype(z.dtype) else x


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
    return _with_length(z, axis, lambda n: -ops.expm1(-n))


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


class StatelessSeed(keras.random.SeedGenerator):
    """Seed generator without state: every draw uses the pair (seed, counter)."""

    def __init__(self, seed, counter=0):
        # The base class would create a variable. Without one, a resumed run draws the same
        # numbers as an uninterrupted run, and a SavedModel can take the seed as an input.
        dtype = "int64" if keras.backend.backend() == "tensorflow" else "uint32"
        self.pair = ops.stack([ops.cast(seed, dtype), ops.cast(counter, dtype)])

    def next(self, ordered=True):
        return self.pair

    def later(self, counts):
        """Return this seed with its counter increased by `counts`."""
        return StatelessSeed(self.pair[0], self.pair[1] + ops.cast(counts, self.pair.dtype))


def split(seed, number):
    """Return an int32 tensor (number, 2) of seed pairs, one for each independent stream."""
    if not isinstance(seed, keras.random.SeedGenerator):
        seed = StatelessSeed(seed)
    return keras.random.randint((number, 2), 0, 2**31 - 1, seed=seed)


def streams(seed, number):
    """Return `number` independent `StatelessSeed` streams of one seed."""
    pairs = split(seed, number)
    return [StatelessSeed(pairs[k, 0], pairs[k, 1]) for k in range(number)]


def draw_index(logits, seed):
    """Sample one index (...) per row from the softmax of logits (..., K)."""
    if not isinstance(seed, keras.random.SeedGenerator):
        seed = StatelessSeed(seed)
    return index_of(logits, index_noise(ops.shape(logits), logits.dtype, seed))


def index_noise(shape, dtype, seed):
    """Return the noise of `draw_index`: uniform numbers above zero."""
    return keras.random.uniform(shape, 1e-30, 1.0, dtype=dtype, seed=seed)


def index_of(logits, noise):
    """Return the int32 index (...) that logits (..., K) and `index_noise` give (Gumbel-max)."""
    return largest(logits - ops.log(-ops.log(noise)))


def step_seed(seed, step):
    """Return the seed of one step of a chain, a scalar integer tensor."""
    return keras.random.randint((), 0, 2**31 - 1, seed=StatelessSeed(seed, step))


def capsule_order(n, capsules, seed):
    """Return capsules (n,) of n images; each block of J has every capsule once, in random order."""
    blocks = (n + capsules - 1) // capsules
    rank = keras.random.uniform((blocks, capsules), seed=seed)
    return ops.cast(ops.reshape(ops.argsort(rank, axis=-1), (-1,))[:n], "int32")
