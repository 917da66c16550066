"""Pixels as numbers in [0, 1]; and a function over a long array, a chunk at a time."""

import functools

import numpy as np

# A divisor of the sizes that sets of images have, so that no graph is made for a rest of them.
CHUNK = 125


def to_pixels(images):
    """Images as float32 pixels in [0, 1], the numbers that `batches` streams.

    Args:
        images: Array (..., C), uint8 in [0, 255], or floats in [0, 1].

    Returns:
        float32 array of the same shape.

    Examples:

    >>> to_pixels(np.array([0, 51, 255], np.uint8)).tolist()
    [0.0, 0.20000000298023224, 1.0]
    """
    images = np.asarray(images)
    pixels = images.astype("float32")
    if images.dtype == np.uint8:
        pixels /= 255
    return pixels


def to_stream(rows):
    """Rows as `batches` streams them: uint8 as `to_pixels`, float16 as float32, others as is.

    Args:
        rows: Array.

    Examples:

    >>> to_stream(np.ones(2, "float16")).dtype, to_stream(np.ones(2, "int64")).dtype
    (dtype('float32'), dtype('int64'))
    """
    if rows.dtype in (np.uint8, np.float16):
        return to_pixels(rows)
    return np.asarray(rows)


def map_batches(function, rows, chunk=CHUNK):
    """`function` of a long array, compiled once and called a chunk at a time.

    Args:
        function: Takes a tensor (B, ...), or as many as `rows` has arrays, and gives a tensor
            (B, ...) or a dict of them. A `tf.function` is taken as it is, so that several calls
            share its graphs.
        rows: Array (N, ...), or a memory-mapped one, or a tuple of them; uint8 pixels come as
            float32 in [0, 1], float16 as float32.
        chunk: int, rows at a time.

    Returns:
        Array (N, ...), or a dict of them.

    Examples:

    >>> images = np.zeros((600, 28, 28, 1), np.uint8)
    >>> map_batches(lambda pixels: pixels[:, ::2, ::2], images).shape
    (600, 14, 14, 1)
    """
    import keras
    import tensorflow as tf

    structure = keras.tree.map_structure
    arrays = rows if isinstance(rows, tuple) else (rows,)
    n = len(arrays[0])
    # Traced for whole chunks, of known size, and once more for the rest: a graph for any size
    # would do, but rounds differently in the last bits.
    compiled = function
    if not hasattr(function, "get_concrete_function"):
        compiled = tf.function(function, reduce_retracing=True, autograph=False)
    if not n:
        dtypes = [to_stream(array[:0]).dtype for array in arrays]
        any_size = [tf.TensorSpec((None, *a.shape[1:]), d) for a, d in zip(arrays, dtypes)]
        results = compiled.get_concrete_function(*any_size).structured_outputs
        return structure(lambda x: np.empty((0, *x.shape[1:]), x.dtype.as_numpy_dtype), results)
    out = None
    for start in range(0, n, chunk):
        batch = [tf.constant(to_stream(array[start : start + chunk])) for array in arrays]
        parts = structure(keras.ops.convert_to_numpy, compiled(*batch))
        if out is None:
            out = structure(lambda part: np.empty((n, *part.shape[1:]), part.dtype), parts)
        structure(functools.partial(_write, start=start), out, parts)
    return out


def _write(array, part, start):
    """Writes `part` to the rows of `array` from `start` on."""
    array[start : start + len(part)] = part
