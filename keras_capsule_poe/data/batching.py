"""Batches of arrays, in an order that depends on the seed and the epoch alone."""

import math
from typing import Any

from keras_capsule_poe.data.mapping import to_stream
from keras_capsule_poe.data.ordering import epoch_order

# Number of prefetched batches. It is fixed, because the thread of tf.data's autotuning may sleep
# for up to a minute and delay the end of a stream.
AHEAD = 4


def steps_per_epoch(n: int, batch_size: int) -> int:
    """Return the number of batches in an epoch.

    Args:
        n: int, number of images.
        batch_size: int, images per batch; the last batch may be smaller.

    Returns:
        int.

    Examples:

    >>> steps_per_epoch(10, batch_size=4)
    3
    """
    return math.ceil(n / batch_size)


def batches(
    arrays: Any,
    *,
    batch_size: int,
    seed: int,
    first_epoch: int = 0,
    first_step: int = 0,
    epochs: int = 1,
    shuffle: bool = True,
) -> Any:
    """Stream the epochs from `first_epoch` to `epochs - 1`, one after another.

    A run that resumes at (`first_epoch`, `first_step`) gets the same batches as an uninterrupted
    run. A batch never mixes two epochs, so the last batch of an epoch may be smaller. Only the
    rows of a batch are copied, so an array may be an `np.memmap` larger than memory.

    Args:
        arrays: array (N, ...), or a tuple of arrays with the same N.
        batch_size: positive int.
        seed: non-negative int; determines the order, see `epoch_order`.
        first_epoch: non-negative int.
        first_step: int, number of batches of `first_epoch` to skip.
        epochs: int, number of epochs of the full run.
        shuffle: bool; if False, images come in their stored order.

    Returns:
        `tf.data.Dataset` of tensors (B, ...) with known length, or of tuples of tensors if
        `arrays` is a tuple. uint8 becomes float32 in [0, 1], float16 becomes float32, and other
        dtypes are unchanged.

    Raises:
        ValueError: If the arrays are empty or differ in N, or a number is out of range.

    Examples:

    >>> import numpy as np
    >>> images = np.zeros((10, 28, 28, 1), np.uint8)
    >>> [tuple(batch.shape) for batch in batches(images, batch_size=8, seed=0)]
    [(8, 28, 28, 1), (2, 28, 28, 1)]
    >>> len(batches(images, batch_size=8, seed=0, first_step=1, epochs=3))
    5
    """
    parts = arrays if isinstance(arrays, tuple) else (arrays,)
    lengths = [len(part) for part in parts]
    if not lengths or len(set(lengths)) != 1 or not lengths[0]:
        raise ValueError(
            "`arrays` must be one or more arrays with the same number of images, at least 1. "
            f"Received: {lengths} images."
        )
    first = first_epoch, first_step
    steps, slices = visits(lengths[0], batch_size, seed, first, epochs, shuffle)

    def gather():
        for _, _, index in slices():
            yield tuple(part[index] for part in parts)

    dtypes = tuple(part[:0] for part in parts)
    return pipeline(gather, dtypes if isinstance(arrays, tuple) else dtypes[0], steps)


def sequential_batches(array: Any, batch_size: int) -> Any:
    """Stream an array once, in its stored order.

    Args:
        array: array (N, ...), or a tuple of arrays with the same N.
        batch_size: positive int.

    Returns:
        `tf.data.Dataset`, see `batches`.

    Examples:

    >>> import numpy as np
    >>> [batch.numpy().tolist() for batch in sequential_batches(np.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    return batches(array, batch_size=batch_size, seed=0, shuffle=False)


def visits(n, batch_size, seed, first, epochs, shuffle=True):
    """Return the number of batches, and a function that iterates over (epoch, step, index)."""
    first_epoch, first_step = first
    if batch_size < 1 or seed < 0 or not 0 <= first_epoch <= epochs:
        raise ValueError(
            "`batch_size` must be at least 1, `seed` at least 0, and `first_epoch` between 0 and "
            f"`epochs`. Received: batch_size={batch_size}, seed={seed}, "
            f"first_epoch={first_epoch}, epochs={epochs}."
        )
    steps = steps_per_epoch(n, batch_size)
    if not 0 <= first_step <= (steps if first_epoch < epochs else 0):
        raise ValueError(
            f"`first_step` must be between 0 and the {steps} steps of an epoch, and 0 after the "
            f"last epoch. Received: first_step={first_step}, first_epoch={first_epoch}, "
            f"epochs={epochs}."
        )

    def slices():
        for epoch in range(first_epoch, epochs):
            order = epoch_order(n, seed, epoch) if shuffle else None
            for step in range(first_step if epoch == first_epoch else 0, steps):
                index = slice(step * batch_size, min((step + 1) * batch_size, n))
                yield epoch, step, index if order is None else order[index]

    return (epochs - first_epoch) * steps - first_step, slices


def pipeline(gather, rows, steps):
    """Wrap an iterator of NumPy batches in a prefetching `tf.data.Dataset` of `steps` batches."""
    import tensorflow as tf

    def streamed():
        for parts in gather():
            parts = tuple(to_stream(part) for part in parts)
            yield parts if isinstance(rows, tuple) else parts[0]

    def signature(array):
        return tf.TensorSpec((None, *array.shape[1:]), to_stream(array[:0]).dtype)

    signatures = tuple(map(signature, rows)) if isinstance(rows, tuple) else signature(rows)
    options = tf.data.Options()
    options.autotune.enabled = False
    return (
        tf.data.Dataset.from_generator(streamed, output_signature=signatures)
        .apply(tf.data.experimental.assert_cardinality(steps))
        .prefetch(AHEAD)
        .with_options(options)
    )
