"""Batches of arrays, streamed epoch after epoch."""

import math

from keras_capsule_poe.data.mapping import to_stream
from keras_capsule_poe.data.ordering import epoch_order

# Batches that are made ahead of their use: a fixed number, since tf.data's own tuning of it has a
# thread that may sleep for up to a minute, for which the end of a stream then waits.
AHEAD = 4


def steps_per_epoch(n, batch_size):
    """Number of batches in which `n` images are visited once, the last one maybe smaller.

    Examples:

    >>> steps_per_epoch(10, batch_size=4)
    3
    """
    return math.ceil(n / batch_size)


def batches(arrays, *, batch_size, seed, first_epoch=0, first_step=0, epochs=1, shuffle=True):
    """Streams the epochs `first_epoch` .. `epochs - 1`, one after another.

    A run resumed at `first_epoch=k`, `first_step=s` gets exactly what a full run gets from step s
    of epoch k on. No batch holds images of two epochs, so the last one of an epoch may be
    smaller. Only the images of a batch are copied, so an array may be a `np.memmap` larger than
    the memory.

    Args:
        arrays: `(N, ...)` array, or a tuple of arrays with the same N.
        batch_size: integer of at least 1.
        seed: integer of at least 0; see `epoch_order`.
        first_epoch: integer of at least 0.
        first_step: number of batches of `first_epoch` to leave out, at most `steps_per_epoch`.
        epochs: number of epochs of the full run, at least `first_epoch`.
        shuffle: whether to visit images in `epoch_order`, instead of as they lie.

    Returns:
        `tf.data.Dataset` of `(B, ...)` tensors, or of tuples of them if `arrays` is a tuple,
        with a known number of batches. uint8 pixels become float32 in [0, 1], float16 become
        float32, and other dtypes stay.

    Raises:
        ValueError: if the arrays are empty or differ in N, or a number is out of range.

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


def sequential_batches(array, batch_size):
    """Streams an array, or a tuple of arrays, once and in order; otherwise as `batches`.

    Examples:

    >>> import numpy as np
    >>> [batch.numpy().tolist() for batch in sequential_batches(np.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    return batches(array, batch_size=batch_size, seed=0, shuffle=False)


def visits(n, batch_size, seed, first, epochs, shuffle=True):
    """Which images each batch holds, of the epochs from `first` on.

    Args:
        n: number of images, at least 1.
        batch_size, seed, epochs, shuffle: see `batches`.
        first: pair, the epoch to begin with and the batches of it to leave out.

    Returns:
        The number of batches, and a function that gives an iterator of `(epoch, step, index)`;
        `index` is an array of numbers of images, or a slice without shuffling.

    Raises:
        ValueError: if a number is out of range.

    Examples:

    >>> steps, slices = visits(5, 2, seed=0, first=(0, 1), epochs=1, shuffle=False)
    >>> steps, list(slices())
    (2, [(0, 1, slice(2, 4, None)), (0, 2, slice(4, 5, None))])
    """
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
    """NumPy batches as a `tf.data.Dataset` of tensors, gathered ahead of their use.

    Args:
        gather: Function that gives an iterator of tuples of arrays `(B, ...)`; uint8 and float16
            ones are streamed as `to_stream` says.
        rows: Tuple of arrays of any length that have their dtypes and shapes, or one array:
            then the stream is one of tensors, not of tuples.
        steps: int, number of batches.

    Examples:

    >>> zeros = np.zeros((2, 3), np.uint8)
    >>> [batch.dtype.name for batch in pipeline(lambda: iter([(zeros,)]), zeros, steps=1)]
    ['float32']
    """
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
