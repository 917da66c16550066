"""A function over a long array, a chunk at a time; and pixels as numbers in [0, 1]."""

import numpy as np

CHUNK = 256


def to_pixels(images):
    """uint8 images as float32 pixels in [0, 1].

    Args:
        images: Array (..., C), uint8 in [0, 255].

    Returns:
        float32 array of the same shape.
    """
    return np.asarray(images, "float32") / 255


def map_batches(function, rows, chunk=CHUNK):
    """`function` of a long array, compiled once and called a chunk at a time.

    Args:
        function: Takes a float tensor (B, ...), gives a tensor (B, ...) or a dict of them.
        rows: Array (N, ...), or a memory-mapped one; uint8 pixels come as float32 in [0, 1],
            float16 as float32.
        chunk: int, rows at a time.

    Returns:
        One array (N, ...), or a dict of arrays.
    """
    import keras

    from keras_capsule_poe.data.batching import sequential_batches

    compiled = _compiled(function)
    chunks = [
        keras.tree.map_structure(keras.ops.convert_to_numpy, compiled(batch))
        for batch in sequential_batches(rows, chunk)
    ]
    return keras.tree.map_structure(lambda *parts: np.concatenate(parts), *chunks)


def _compiled(function):
    import tensorflow as tf

    return tf.function(function, reduce_retracing=True)
