"""On what kind of device the backend computes, and how much it takes there at a time."""

import functools

import keras

# A processor is fast with what stays in its cache, other devices with what keeps thousands of
# units busy; their memory is thousands of times a cache.
ELSEWHERE = 32
# Numbers, about, in one intermediate tensor on a processor: 8 MiB in float32.
BLOCK = 1 << 21


@functools.cache
def on_processor():
    """Whether the backend computes on a processor."""
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
    """How many numbers to have in an intermediate tensor, of as many as suit a processor's cache.

    Examples:

    >>> at_once(1000)
    1000
    """
    return numbers if on_processor() else ELSEWHERE * numbers
