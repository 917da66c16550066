"""Training examples of classifiers: images and multi-hot labels."""

import numpy as np

from keras_capsule_poe.data import stream
from keras_capsule_poe.data.batching import AHEAD
from keras_capsule_poe.errors import ConfigError, DataError


def class_labels(images, classes, section):
    """Return the labels of an `ImageSet`; raise an error unless all lie in [0, `classes`)."""
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
    """Return whether the set has each part of an image separately, as MultiMNIST has."""
    return "targets" in images.epoch(0, 0)(np.arange(1))


def examples(images, classes, **order):
    """Return a `tf.data.Dataset` of images (B, H, W, C) and multi-hot labels (B, J)."""
    import tensorflow as tf

    names = ("images", "labels", "targets") if has_targets(images) else ("images", "labels")

    # With targets, the labels are (labels, targets (B, T, H, W, C), part labels (B, T, J)).
    # Such images must not be augmented: they would no longer match their targets.
    def hot(pixels, labels, *targets):
        parts = tf.one_hot(labels, classes)
        whole = parts if labels.shape.rank == 1 else tf.reduce_max(parts, axis=1)
        return pixels, (whole, *targets, parts) if targets else whole

    return stream(images, names, **order).map(hot, AHEAD)
