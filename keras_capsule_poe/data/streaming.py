"""Images, labels and what belongs to them, streamed; composed and augmented on the way."""

import numpy as np

from keras_capsule_poe.data.batching import pipeline, visits
from keras_capsule_poe.data.ordering import generator

_AUGMENTING = 2


def stream(
    images,
    names=("images", "labels"),
    *,
    batch_size,
    seed,
    first_epoch=0,
    first_step=0,
    epochs=1,
    shuffle=True,
    augment=None,
):
    """Streams the epochs `first_epoch` .. `epochs - 1` of a set, one after another.

    As `batches`: in `epoch_order`, and a run resumed in the midst gets what a full run gets.
    What is composed derives from (seed, epoch), what is augmented from (seed, epoch, step), so
    that the same arguments always give the same stream.

    Args:
        images: `ImageSet` or `ComposedSet`.
        names: tuple of str, what to stream: `images`, `labels` and names of extras.
        batch_size, seed, first_epoch, first_step, epochs, shuffle: see `batches`.
        augment: function of images `(B, H, W, C)` and an `np.random.Generator` to images, uint8
            or float32, applied to `images` alone; see `data.augmentation`. `None`: as they are.

    Returns:
        `tf.data.Dataset` of tuples of `(B, ...)` tensors in the order of `names`, with a known
        number of batches. uint8 pixels become float32 in [0, 1].

    Raises:
        ValueError: if a number is out of range or there is nothing of such a name.

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
    order = {"batch_size": batch_size, "seed": seed, "first_epoch": first_epoch}
    order |= {"first_step": first_step, "epochs": epochs, "shuffle": shuffle}
    steps, gather = gathered(images, names, augment=augment, **order)
    example = images.epoch(seed, first_epoch)(np.arange(1))
    if augment is not None:
        example["images"] = augment(example["images"], generator(seed, 0, 0, _AUGMENTING))
    return pipeline(gather, tuple(example[name] for name in names), steps)


def gathered(
    images,
    names=("images", "labels"),
    *,
    batch_size,
    seed,
    first_epoch=0,
    first_step=0,
    epochs=1,
    shuffle=True,
    augment=None,
):
    """What `stream` streams, as arrays, without TensorFlow.

    Args:
        images, names, batch_size, seed, first_epoch, first_step, epochs, shuffle, augment: See
            `stream`.

    Returns:
        The number of batches, and a function that gives an iterator of tuples of arrays
        `(B, ...)`; pixels are as they are held, uint8 or float32.

    Raises:
        ValueError: if a number is out of range or there is nothing of such a name.

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
