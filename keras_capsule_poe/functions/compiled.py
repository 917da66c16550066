"""Loops as one graph of the backend, where it has graphs."""

import keras


def compiled(function):
    """A function of tensors as a graph of the backend; as it is where there are none.

    Args:
        function: Takes and returns tensors, or structures of them.

    Returns:
        A function of the same arguments.

    Examples:

    >>> float(compiled(lambda x: 2 * x)(ops.ones(())))
    2.0
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, autograph=False, reduce_retracing=True)
    if backend == "jax":
        import jax

        return jax.jit(function)
    return function
