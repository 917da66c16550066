"""Streams of images, labels and extras, composed and augmented on the fly."""

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_capsule_poe.data.batching import pipeline, visits
from keras_capsule_poe.data.ordering import generator

_AUGMENTING = 2


def stream(
    images: Any,
    names: tuple[str, ...] = ("images", "labels"),
    *,
    batch_size: int,
    seed: int,
    first_epoch: int = 0,
    first_step: int = 0,
    epochs: int = 1,
    shuffle: bool = True,
    augment: Callable[..., Any] | None = None,
) -> Any:
    """Stream the epochs from `first_epoch` to `epochs - 1` of an image set.

    Order and resumption work as in `batches`. Composition depends on (seed, epoch) and augmentation
    on (seed, epoch, step), so the same arguments always give the same stream.

    Args:
        images: `ImageSet` or `ComposedSet`.
        names: tuple of str, the arrays to stream: `images`, `labels` or names of extras.
        batch_size: See `batches`, also for all arguments up to `shuffle`.
        seed: int.
        first_epoch: int.
        first_step: int.
        epochs: int.
        shuffle: bool.
        augment: function of images (B, H, W, C) and an `np.random.Generator` that returns uint8
            or float32 images, see `data.augmentation`. Default: no augmentation.

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
    order: dict[str, Any] = {"batch_size": batch_size, "seed": seed, "first_epoch": first_epoch}
    order |= {"first_step": first_step, "epochs": epochs, "shuffle": shuffle}
    steps, gather = gathered(images, names, augment=augment, **order)
    example = images.epoch(seed, first_epoch)(np.arange(1))
    if augment is not None:
        example["images"] = augment(example["images"], generator(seed, 0, 0, _AUGMENTING))
    return pipeline(gather, tuple(example[name] for name in names), steps)


def gathered(
    images: Any,
    names: tuple[str, ...] = ("images", "labels"),
    *,
    batch_size: int,
    seed: int,
    first_epoch: int = 0,
    first_step: int = 0,
    epochs: int = 1,
    shuffle: bool = True,
    augment: Callable[..., Any] | None = None,
) -> tuple[int, Callable[..., Any]]:
    """Return the batches of `stream` as NumPy arrays, without TensorFlow.

    All arguments are those of `stream`.

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
    first = first_epoch, first_step
    steps, slices = visits(len(images), batch_size, seed, first, epochs, shuffle)
    numbers = np.arange(len(images))
    known = images.epoch(seed, first_epoch)(numbers[:1])
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"`names` must be some of {', '.join(known)}. Received: {', '.join(unknown)}."
        )

    def gather():
        current, rows = None, None
        for epoch, step, index in slices():
            if epoch != current:
                current, rows = epoch, images.epoch(seed, epoch)
            found = rows(numbers[index])
            if augment is not None:
                random = generator(seed, epoch, step, _AUGMENTING)
                found = {**found, "images": augment(found["images"], random)}
            yield tuple(found[name] for name in names)

    return steps, gather
