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


def chunks(rows, size):
    """Yield consecutive parts (size, ...) of an array (N, ...); the last one may be smaller."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def map_batches(function, rows, chunk=CHUNK):
    """Apply `function` to arrays (N, ...) in chunks, as a graph of TensorFlow; join the results."""
    import keras

    arrays = rows if isinstance(rows, tuple) else (rows,)
    n, out = len(arrays[0]), None
    if keras.backend.backend() == "tensorflow" and not hasattr(function, "get_concrete_function"):
        import tensorflow as tf

        # Traced once per chunk size: one graph for any size would round the last bits differently.
        # A partial function is counted alone when TensorFlow warns of tracing.
        graph = functools.partial(function)
        function = tf.function(graph, reduce_retracing=True, autograph=False)
    if not n:
        return keras.tree.map_structure(_no_rows, _traced(function, arrays))
    for start in range(0, n, chunk):
        batch = [keras.ops.convert_to_tensor(to_stream(a[start : start + chunk])) for a in arrays]
        found = function(*batch)
        parts = [keras.ops.convert_to_numpy(part) for part in keras.tree.flatten(found)]
        if out is None:
            out = [np.empty((n, *part.shape[1:]), part.dtype) for part in parts]
        for array, part in zip(out, parts):
            array[start : start + len(part)] = part
    return keras.tree.pack_sequence_as(found, out)


def _traced(graph, arrays):
    """Return the specs of the results of a TensorFlow function for any number of rows."""
    import tensorflow as tf

    dtypes = [to_stream(array[:0]).dtype for array in arrays]
    specs = [tf.TensorSpec((None, *a.shape[1:]), dtype) for a, dtype in zip(arrays, dtypes)]
    return graph.get_concrete_function(*specs).structured_outputs


def _no_rows(spec):
    return np.empty((0, *spec.shape[1:]), spec.dtype.as_numpy_dtype)
