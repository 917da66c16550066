"""Views of rows of long arrays."""

import functools

import numpy as np


class RowView:
    """Lazy view of rows of an array (M, ...), read only when indexed or converted."""

    def __init__(self, rows, index):
        self.rows, self.index = rows, index

    @property
    def shape(self):
        return (len(self.index), *self.rows.shape[1:])

    @property
    def dtype(self):
        return self.rows.dtype

    def __len__(self):
        return len(self.index)

    def __getitem__(self, key):
        if isinstance(key, tuple):
            rows, *inside = key
            return RowView(self.rows[(slice(None), *inside)], self.index)[rows]
        if isinstance(key, slice):
            return RowView(self.rows, self.index[key])
        return self.rows[self.index[key]]

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.rows[self.index], dtype)


def view(rows, index):
    """Return `rows[index]`, without a copy if the rows lie on disk."""
    if isinstance(index, slice) or not isinstance(rows, (np.memmap, RowView)):
        return rows[index]
    index = np.flatnonzero(index) if np.asarray(index).dtype == bool else np.asarray(index)
    if isinstance(rows, RowView):
        return RowView(rows.rows, rows.index[index])
    return RowView(rows, index)


def spread(n, most):
    """Return at most `most` evenly spaced indices of `n` rows."""
    kept = min(n, most)
    return np.arange(kept) * n // max(kept, 1)


# Divides common data set sizes, which saves tracing a graph for a smaller last chunk.
CHUNK = 125


def to_pixels(images):
    """Return images as float32 pixels in [0, 1]; uint8 values are divided by 255."""
    images = np.asarray(images)
    pixels = images.astype("float32")
    if images.dtype == np.uint8:
        pixels /= 255
    return pixels


def to_stream(rows):
    """Convert uint8 to float32 in [0, 1] and float16 to float32; keep other dtypes."""
    if rows.dtype in (np.uint8, np.float16):
        return to_pixels(rows)
    return np.asarray(rows)


def map_batches(function, rows, chunk=CHUNK):
    """Compile `function`, apply it to arrays (N, ...) in chunks and join the results."""
    import keras
    import tensorflow as tf

    structure = keras.tree.map_structure
    arrays = rows if isinstance(rows, tuple) else (rows,)
    n = len(arrays[0])
    # Traced once per chunk size: one graph for any size would round the last bits differently.
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
    array[start : start + len(part)] = part
