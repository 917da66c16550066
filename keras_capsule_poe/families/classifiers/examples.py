"""What a classifier is fitted to: images, and their classes as vectors of zeros and ones."""

import numpy as np

from keras_capsule_poe.data import stream
from keras_capsule_poe.data.batching import AHEAD
from keras_capsule_poe.errors import ConfigError, DataError


def class_labels(images, classes, section):
    """The labels of an `ImageSet`, for a network of so many classes.

    Raises:
        DataError: If it has none, or one that is no class from 0 up.
        ConfigError: If there are more classes than the network has.
    """
    if images.labels is None:
        raise DataError("A classifier needs images with labels. Received: images without labels")
    if images.labels.min() < 0:
        raise DataError("A classifier needs images that are all labelled. Received: a label -1")
    if images.labels.max() >= classes:
        raise ConfigError(
            f"{section}: `classes` must be at least {images.labels.max() + 1} for these labels. "
            f"Received: classes={classes}"
        )
    return images.labels


def has_targets(images):
    """Whether each part of an image is at hand on its own, as in MultiMNIST.

    Args:
        images: `ImageSet` or `ComposedSet`.
    """
    return "targets" in images.epoch(0, 0)(np.arange(1))


def examples(images, classes, **order):
    """Images and what `CapsNet` is fitted to, epoch after epoch.

    Args:
        images: `ImageSet` or `ComposedSet` with labels (N,) or, T of them an image, (N, T).
        classes: int, J.
        **order: Arguments of `data.stream`. Not `augment` where there are targets: an image
            would move away from them.

    Returns:
        `tf.data.Dataset` of images (B, H, W, C) and labels (B, J); where there are targets,
        the labels are a tuple of them, targets (B, T, H, W, C) and their labels (B, T, J).

    Examples:

    >>> from keras_capsule_poe.data import load_images
    >>> pairs = load_images("digits_multi", limit=20).train
    >>> ((images, (labels, targets, parts)),) = examples(pairs, 10, batch_size=20, seed=0)
    >>> labels.shape, targets.shape, parts.shape
    (TensorShape([20, 10]), TensorShape([20, 2, 36, 36, 1]), TensorShape([20, 2, 10]))
    """
    import tensorflow as tf

    names = ("images", "labels", "targets") if has_targets(images) else ("images", "labels")

    def hot(pixels, labels, *targets):
        parts = tf.one_hot(labels, classes)
        whole = parts if labels.shape.rank == 1 else tf.reduce_max(parts, axis=1)
        return pixels, (whole, *targets, parts) if targets else whole

    return stream(images, names, **order).map(hot, AHEAD)
