"""Loops compiled to a graph, on backends with graphs."""

import keras


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
