"""Shards of a batch on several devices, with random draws that do not depend on the shards."""

import contextlib
import contextvars

import keras
from keras import ops

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
