"""A function over a long array, a chunk at a time; and pixels as numbers in [0, 1]."""

import functools

import numpy as np

CHUNK = 256


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


def map_batches(function, rows, chunk=CHUNK, out=None, before=None):
    """`function` of a long array, compiled once and called a chunk at a time.

    Args:
        function: Takes a float tensor (B, ...), gives a tensor (B, ...) or a dict of them.
        rows: Array (N, ...), or a memory-mapped one; uint8 pixels come as float32 in [0, 1],
            float16 as float32.
        chunk: int, rows at a time.
        out: Array (N, ...), or a dict of them, to write the results to, of whatever dtype; with
            memory-mapped ones, results may be larger than the memory. `None`: new arrays.
        before: Function of a batch, applied to each on its way, ahead of its use.

    Returns:
        `out`, or one new array (N, ...), or a dict of them.

    Raises:
        ValueError: If `out` has another shape than the results.

    Examples:

    >>> images = np.zeros((600, 28, 28, 1), np.uint8)
    >>> map_batches(lambda pixels: pixels[:, ::2, ::2], images).shape
    (600, 14, 14, 1)
    """
    import keras
    import tensorflow as tf

    from keras_capsule_poe.data.batching import sequential_batches, stream_dtype

    structure = keras.tree.map_structure
    # Traced for whole chunks, of known size, and once more for the rest: a graph for any size
    # would do, but rounds differently in the last bits.
    compiled = tf.function(function, reduce_retracing=True, autograph=False)
    if not len(rows) and out is None:
        any_size = tf.TensorSpec((None, *rows.shape[1:]), stream_dtype(rows.dtype))
        whole = tf.function(lambda x: function(before(x) if before else x), autograph=False)
        results = whole.get_concrete_function(any_size).structured_outputs
        return structure(lambda x: np.empty((0, *x.shape[1:]), x.dtype.as_numpy_dtype), results)
    stream = sequential_batches(rows, chunk) if len(rows) else ()
    if before is not None and len(rows):
        stream = stream.map(before, tf.data.AUTOTUNE)
    start = 0
    for batch in stream:
        parts = structure(keras.ops.convert_to_numpy, compiled(batch))
        if out is None:
            out = structure(lambda part: np.empty((len(rows), *part.shape[1:]), part.dtype), parts)
        structure(functools.partial(_write, start=start, n=len(rows)), out, parts)
        start += len(batch)
    return out


def _write(array, part, start, n):
    """Writes `part` to the rows of `array` from `start` on."""
    if array.shape != (n, *part.shape[1:]):
        raise ValueError(
            f"`out` must have the shape of the results, {(n, *part.shape[1:])}. "
            f"Received: {array.shape}."
        )
    array[start : start + len(part)] = part
