"""Kind of device the backend computes on, and the size of its intermediate tensors."""

import functools

import keras

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
