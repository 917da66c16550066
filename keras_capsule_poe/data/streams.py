"""Orders and streams of images that depend on the seed, the epoch and the step alone."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_capsule_poe.data.mapping import to_stream
from keras_capsule_poe.errors import DataError

# Number of prefetched batches. It is fixed, because the thread of tf.data's autotuning may sleep
# for up to a minute and delay the end of a stream.
AHEAD = 4
_AUGMENTING = 2


def epoch_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order in which an epoch visits the images.

    The order depends on the arguments alone, so a resumed run visits the same images as an
    uninterrupted run.

    Args:
        n: int, number of images.
        seed: non-negative int.
        epoch: non-negative int.

    Returns:
        int64 array (n,), a permutation of 0 .. n - 1.

    Raises:
        ValueError: If an argument is negative.

    Examples:

    >>> sorted(epoch_order(5, seed=0, epoch=1).tolist())
    [0, 1, 2, 3, 4]
    """
    if min(n, seed, epoch) < 0:
        raise ValueError(
            "`n`, `seed` and `epoch` must be at least 0. "
            f"Received: n={n}, seed={seed}, epoch={epoch}."
        )
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    return generator.permutation(n).astype(np.int64, copy=False)


def generator(seed, epoch, step, purpose):
    """Return a random generator for these arguments; each `purpose` has its own stream."""
    if min(seed, epoch, step) < 0 or purpose < 1:
        raise ValueError(
            "`seed`, `epoch` and `step` must be at least 0, and `purpose` at least 1. "
            f"Received: seed={seed}, epoch={epoch}, step={step}, purpose={purpose}."
        )
    # Zeros at the end have no effect: [seed, epoch, 0, 0] would repeat `epoch_order`.
    words = np.random.SeedSequence([seed, epoch, step, purpose])
    return np.random.Generator(np.random.Philox(words))


def by_class(labels, seed):
    """Return a random order of images in which any stretch has about the same shares of classes.

    The last images are one of each class, if it has two or more, so that they can be held out.

    Args:
        labels: int array (N,), the class of each image. With one class the order is random.
        seed: non-negative int.
    """
    order = epoch_order(len(labels), seed, 0)
    classes, number, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
    if len(classes) < 2:
        return order
    rank = _ranks(number)
    phase = generator(seed, 0, 0, 1).random(len(classes))
    place = (rank + phase[number]) / counts[number]
    is_last = (rank == counts[number] - 1) & (counts[number] > 1)
    return order[np.lexsort((place, is_last))]


def single_classes(labels, n):
    """Return the class (N,) of each of `n` images; zeros without classes or with several each."""
    return np.zeros(n, np.int64) if labels is None or labels.ndim > 1 else labels


def mixed(labels, seed=0):
    """Return the order `by_class` of labels (N,); of labels (N, K) a random order.

    If no two images are of one class, it is the given order.
    """
    if labels.ndim == 1 and len(np.unique(labels)) == len(labels):
        return np.arange(len(labels))
    return by_class(single_classes(labels, len(labels)), seed)


def in_blocks(labels):
    """Return whether labels (N,) change less than half as often as in a random order."""
    if labels is None or labels.ndim != 1 or len(labels) < 2:
        return False
    counts = np.unique(labels, return_counts=True)[1]
    if not 1 < len(counts) < len(labels):
        return False
    # Of random neighbours, this share is of two classes.
    share = 1 - (counts * (counts - 1)).sum() / (len(labels) * (len(labels) - 1))
    return np.count_nonzero(np.diff(labels)) < share * (len(labels) - 1) / 2


def hold_out(labels, fraction, seed):
    """Split images by class at random into training and test indices.

    A class of two or more images has at least one on each side.

    Args:
        labels: int array (N,), the class of each image, or equal numbers without classes.
        fraction: float, share of test images.
        seed: non-negative int.
    """
    n = len(labels)
    if n < 2:
        raise DataError(
            f"there must be at least 2 images, so that one can be kept to test with. Received: {n}."
        )
    order = epoch_order(n, seed, 0)
    classes, number, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
    if len(classes) < 2 or counts.max() < 2:
        tests = min(max(round(n * fraction), 1), n - 1)
        return order[tests:], order[:tests]
    tests = np.clip(np.rint(counts * fraction), counts > 1, counts - 1)
    is_test = _ranks(number) < tests[number]
    test, train = order[is_test], order[~is_test]
    return train[by_class(labels[train], seed)], test[by_class(labels[test], seed)]


def _ranks(number):
    """Return how many images of the same class come before each one."""
    order = np.argsort(number, kind="stable")
    firsts = np.cumsum(np.bincount(number)) - np.bincount(number)
    ranks = np.empty(len(number), np.int64)
    ranks[order] = np.arange(len(number)) - firsts[number[order]]
    return ranks


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
    steps, visits = _visits(lengths[0], batch_size, seed, first_epoch, first_step, epochs, shuffle)

    def gather():
        for _, _, index in visits():
            yield tuple(part[index] for part in parts)

    rows = tuple(part[:0] for part in parts)
    return _pipeline(gather, rows if isinstance(arrays, tuple) else rows[0], steps)


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


def stream(
    images: Any,
    names: tuple[str, ...] = ("images", "labels"),
    *,
    augment: Callable[..., Any] | None = None,
    **order: Any,
) -> Any:
    """Stream the epochs from `first_epoch` to `epochs - 1` of an image set.

    Order and resumption work as in `batches`. Composition depends on (seed, epoch) and augmentation
    on (seed, epoch, step), so the same arguments always give the same stream.

    Args:
        images: `ImageSet` or `ComposedSet`.
        names: tuple of str, the arrays to stream: `images`, `labels` or names of extras.
        augment: function of images (B, H, W, C) and an `np.random.Generator` that returns uint8
            or float32 images, see `data.augmentation`. Default: no augmentation.
        **order: the keyword arguments of `batches`.

    Returns:
        `tf.data.Dataset` of tuples of tensors (B, ...) in the order of `names`, with known length.
        uint8 pixels become float32 in [0, 1].

    Raises:
        ValueError: If a number is out of range or a name is unknown.

    Examples:

    >>> from keras_capsule_poe.data import load_images
    >>> pairs = load_images("digits_multi", limit=100).train
    >>> for images, labels, targets in stream(
    ...     pairs, ("images", "labels", "targets"), batch_size=64, seed=0
    ... ):
    ...     print(images.shape, labels.shape, targets.shape)
    (64, 36, 36, 1) (64, 2) (64, 2, 36, 36, 1)
    (36, 36, 36, 1) (36, 2) (36, 2, 36, 36, 1)
    """
    steps, gather = gathered(images, names, augment=augment, **order)
    example = images.epoch(order["seed"], order.get("first_epoch", 0))(np.arange(1))
    if augment is not None:
        random = generator(order["seed"], 0, 0, _AUGMENTING)
        example["images"] = augment(example["images"], random)
    return _pipeline(gather, tuple(example[name] for name in names), steps)


def gathered(
    images: Any,
    names: tuple[str, ...] = ("images", "labels"),
    *,
    augment: Callable[..., Any] | None = None,
    **order: Any,
) -> tuple[int, Callable[..., Any]]:
    """Return the batches of `stream` as NumPy arrays, without TensorFlow.

    Args:
        images, names, augment, **order: See `stream`.

    Returns:
        int, the number of batches, and a function that returns an iterator over tuples of arrays
        (B, ...). Pixels are not rescaled.

    Raises:
        ValueError: If a number is out of range or a name is unknown.

    Examples:

    >>> from keras_capsule_poe.data import load_images
    >>> steps, gather = gathered(load_images("digits", limit=100).train, batch_size=64, seed=0)
    >>> steps, [(images.shape, labels.shape) for images, labels in gather()]
    (2, [((64, 28, 28, 1), (64,)), ((36, 28, 28, 1), (36,))])
    """
    steps, visits = _visits(len(images), **order)
    seed, numbers = order["seed"], np.arange(len(images))
    known = images.epoch(seed, order.get("first_epoch", 0))(numbers[:1])
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"`names` must be some of {', '.join(known)}. Received: {', '.join(unknown)}."
        )

    def gather():
        current, rows = None, None
        for epoch, step, index in visits():
            if epoch != current:
                current, rows = epoch, images.epoch(seed, epoch)
            found = rows(numbers[index])
            if augment is not None:
                random = generator(seed, epoch, step, _AUGMENTING)
                found = {**found, "images": augment(found["images"], random)}
            yield tuple(found[name] for name in names)

    return steps, gather


def _visits(n, batch_size, seed, first_epoch=0, first_step=0, epochs=1, shuffle=True):
    """Return the number of batches, and a function that iterates over (epoch, step, index)."""
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

    def visits():
        for epoch in range(first_epoch, epochs):
            order = epoch_order(n, seed, epoch) if shuffle else None
            for step in range(first_step if epoch == first_epoch else 0, steps):
                index = slice(step * batch_size, min((step + 1) * batch_size, n))
                yield epoch, step, index if order is None else order[index]

    return (epochs - first_epoch) * steps - first_step, visits


def _pipeline(gather, rows, steps):
    """Wrap an iterator of tuples of batches in a prefetching `tf.data.Dataset` of `steps` batches.

    Its elements are tuples if `rows`, an example, is a tuple of arrays, else single arrays.
    """
    import tensorflow as tf

    def streamed():
        for parts in gather():
            parts = tuple(map(to_stream, parts))
            yield parts if isinstance(rows, tuple) else parts[0]

    def spec(array):
        return tf.TensorSpec((None, *array.shape[1:]), to_stream(array[:0]).dtype)

    signature = tuple(map(spec, rows)) if isinstance(rows, tuple) else spec(rows)
    options = tf.data.Options()
    options.autotune.enabled = False
    return (
        tf.data.Dataset.from_generator(streamed, output_signature=signature)
        .apply(tf.data.experimental.assert_cardinality(steps))
        .prefetch(AHEAD)
        .with_options(options)
    )
