"""Which rows of a batch are at hand where its images are shared out among several devices.

What is drawn at random is drawn for the whole batch, and cut: so an image gets the same numbers
wherever it lies, and several devices learn what one would.
"""

import contextlib
import contextvars

import keras
from keras import ops

_current = contextvars.ContextVar("rows", default=None)


@contextlib.contextmanager
def rows_at_hand(start, total):
    """While open, batches are rows `start`, `start + 1`, ... of one of `total`.

    Args:
        start, total: int or scalar integer tensors.

    Examples:

    >>> with rows_at_hand(2, 5):
    ...     part = draw_rows(keras.random.uniform, (3, 4), seed=0)
    >>> whole = draw_rows(keras.random.uniform, (5, 4), seed=0)
    >>> bool(ops.all(part == whole[2:]))
    True
    """
    token = _current.set((start, total))
    try:
        yield
    finally:
        _current.reset(token)


def current_rows(images):
    """The first row at hand and how many there are in all: a batch of its own by default.

    Args:
        images: int or scalar integer tensor, how many are at hand.
    """
    return _current.get() or (0, images)


def draw_rows(draw, shape, **options):
    """What `draw` gives for the rows at hand.

    Args:
        draw: Function of a shape and options, as `keras.random.uniform`.
        shape: Tuple, of the rows at hand; the first number is how many they are.
        **options: Of `draw`, among them `seed`.

    Returns:
        Tensor of that shape.
    """
    if _current.get() is None:
        return draw(shape, **options)
    start, total = _current.get()
    return ops.take(draw((total, *shape[1:]), **options), start + ops.arange(shape[0]), axis=0)


def drop_rows(x, rate, seed):
    """Dropout: each number is zero with probability `rate`, the others are over `1 - rate`.

    Args:
        x: Tensor (B, ...).
        rate: float in [0, 1).
        seed: int or `keras.random.SeedGenerator`.

    Returns:
        Tensor of the shape of `x`.

    Examples:

    >>> sorted(set(np.ravel(drop_rows(np.ones((9, 9), "float32"), 0.5, seed=0)).tolist()))
    [0.0, 2.0]
    """
    if _current.get() is None:
        return keras.random.dropout(x, rate, seed=seed)
    # As Keras makes its mask, so that one device and several drop the same.
    mask = draw_rows(_dropped_ones, tuple(ops.shape(x)), rate=rate, dtype=x.dtype, seed=seed)
    return x * mask


def _dropped_ones(shape, rate, dtype, seed):
    return keras.random.dropout(ops.ones(shape, dtype), rate, seed=seed)
