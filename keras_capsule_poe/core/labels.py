"""Winners among capsules, and whether they are those of the labels."""

import numpy as np
from keras import ops

from keras_capsule_poe.core.numerics import (
    largest,
    length,
)


def winners(capsules):
    """Return the index (N,) of the longest capsule, from capsules (N, J, E) or lengths (N, J)."""
    if isinstance(capsules, np.ndarray):
        lengths = np.linalg.norm(capsules, axis=-1) if capsules.ndim == 3 else capsules
        return lengths.argmax(axis=-1)
    lengths = length(capsules) if len(capsules.shape) == 3 else capsules
    return largest(lengths)


def winner_alone(capsules):
    """Return capsules (N, J, E) with all but the longest of each image set to zero."""
    chosen = ops.one_hot(winners(capsules), capsules.shape[1], dtype=capsules.dtype)
    return capsules * chosen[..., None]


def longest(lengths, n):
    """Return the indices (N, n) of the `n` longest capsules, longest first; ties by index."""
    return np.argsort(-lengths, axis=-1, kind="stable")[:, :n]


def are_longest(lengths, labels):
    """Return which of an image's T labels, (N,) or (N, T), are among its T longest capsules."""
    each = labels.reshape(len(labels), -1)
    return are_among(each, longest(lengths, each.shape[1])).reshape(labels.shape)


def are_among(classes, others):
    """Return a boolean (N, S): which classes (N, S) occur in others (N, T) of the same image."""
    return np.any(classes[:, :, None] == others[:, None], axis=-1)


def are_present(labels):
    """Return which classes (..., J) an image shows: the largest labels, unless they are zero.

    For smoothed or mixed labels this is the class of the largest share.
    """
    labels = ops.cast(labels, "float32")
    return (labels > 0) & (labels >= ops.max(labels, axis=-1, keepdims=True, initial=0.0))


def named_rightly(labels, lengths):
    """Return one (B,) if every class of an image is longer than every other class, else zero.

    One half stands for the other side of an image that shows none or all of the classes.
    """
    is_present = are_present(labels)
    lengths = ops.cast(lengths, "float32")
    present = ops.min(ops.where(is_present, lengths, 2.0), axis=-1, initial=2.0)
    absent = ops.max(ops.where(is_present, -1.0, lengths), axis=-1, initial=-1.0)
    present = ops.where(ops.any(is_present, axis=-1), present, 0.5)
    absent = ops.where(ops.all(is_present, axis=-1), 0.5, absent)
    return ops.cast(present > absent, "float32")
