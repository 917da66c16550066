"""Shards of a batch on several devices, with random draws that do not depend on the shards."""

import contextlib
import contextvars

import keras
from keras import ops

from keras_capsule_poe.core.numerics import compiled

_current = contextvars.ContextVar("rows", default=None)


@contextlib.contextmanager
def rows_at_hand(start, total):
    """Declare that batches are a shard: rows `start`, `start + 1`, ... of `total` rows."""
    token = _current.set((start, total))
    try:
        yield
    finally:
        _current.reset(token)


def current_rows(images):
    """Return the shard offset and the total number of rows; by default (0, images)."""
    return _current.get() or (0, images)


def draw_rows(draw, shape, **options):
    """Return the shard's rows of `draw(shape, **options)`; shape[0] is the shard's size."""
    if _current.get() is None:
        return draw(shape, **options)
    # Draw for the whole batch, so that an image gets the same numbers on any device.
    start, total = _current.get()
    return ops.take(draw((total, *shape[1:]), **options), start + ops.arange(shape[0]), axis=0)


def drop_rows(x, rate, seed):
    """Apply dropout to x (B, ...) with the same mask for any number of devices."""
    if _current.get() is None:
        return keras.random.dropout(x, rate, seed=seed)
    # The mask is made as Keras makes it, so that one device and several drop the same numbers.
    mask = draw_rows(_dropped_ones, tuple(ops.shape(x)), rate=rate, dtype=x.dtype, seed=seed)
    return x * mask


def _dropped_ones(shape, rate, dtype, seed):
    return keras.random.dropout(ops.ones(shape, dtype), rate, seed=seed)


def over_images(of_slice, arrays, at_once, results, sums, together=1):
    """Run `of_slice` on slices of at most `at_once` images; return (per-image results, sums).

    An array may be None; `of_slice` then gets None.
    """
    size, dtype = ops.shape(arrays[0])[0], arrays[0].dtype
    is_known = isinstance(size, int) and isinstance(at_once, int)
    if at_once is None or (is_known and size <= at_once):
        return of_slice(*arrays)
    # Zeros pad the last slice, so `of_slice` must add nothing to the sums for zeros. `together`
    # slices run in parallel.
    slices = (size + at_once - 1) // at_once
    slices = together * ((slices + together - 1) // together)
    slices = slices if isinstance(size, int) else ops.maximum(slices, together)
    length = (size + slices - 1) // slices
    # Outside of the loop, within which XLA does not see that its length is a constant.
    first = ops.arange(length)

    def body(done, totals, added):
        for k in range(together):
            where = done + k * length + first
            within, rows = where < size, ops.minimum(where, size - 1)
            taken = [None if a is None else ops.take(a, rows, axis=0) for a in arrays]
            new, more = of_slice(*[None if a is None else a * _fitting(within, a) for a in taken])
            totals = [ops.scatter_update(t, where[:, None], n) for t, n in zip(totals, new)]
            added = [a + m for a, m in zip(added, more)]
        # Depend on this slice's results: TensorFlow would otherwise run many slices in parallel,
        # which needs the memory of all of them.
        numbers = [ops.ravel(result)[0] for result in (*new[:1], *added[-1:])]
        waited = sum(ops.cast(ops.isnan(number), done.dtype) // 2 for number in numbers)
        return done + together * length + waited, totals, added

    whole = [ops.zeros((slices * length, *shape), dtype=dtype) for shape in results]
    start = (ops.zeros((), dtype="int32"), whole, [ops.zeros(shape, dtype=dtype) for shape in sums])
    _, whole, added = ops.while_loop(lambda done, *_: done < size, body, start)
    return [result[:size] for result in whole], added


def in_parts(draw, n, at_once, shape):
    """Return `n` rows from `draw(part, count)`, called for at most `at_once` rows at a time."""
    parts = (n + at_once - 1) // at_once
    least = max(parts, 1) if isinstance(n, int) else ops.maximum(parts, 1)
    count = (n + least - 1) // least

    def one(part):
        return ops.cast(draw(part, count), "float32")

    # If `n` is a tensor, this code already runs in a graph.
    one = compiled(one) if isinstance(n, int) and n > at_once else one

    def body(part, whole):
        rows = (part * count + ops.arange(count))[:, None]
        return part + 1, ops.scatter_update(whole, rows, one(part))

    whole = ops.zeros((parts * count, *shape), "float32")
    start = ops.zeros((), "int32"), whole
    return ops.while_loop(lambda part, _: part < parts, body, start)[1][:n]


def _fitting(within, array):
    return ops.reshape(ops.cast(within, array.dtype), (-1,) + (1,) * (len(array.shape) - 1))
