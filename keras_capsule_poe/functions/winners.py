"""The winning capsules of an image: the longest, which are the most probable ones."""

import numpy as np
from keras import ops

from keras_capsule_poe.functions.norms import length


def winners(capsules):
    """The longest capsule of each image, the first of those that are equally long.

    Args:
        capsules: Array or tensor (N, J, E) of capsules, or (N, J) of their lengths.

    Returns:
        Integer array or tensor (N,), as `capsules` is one.

    Examples:

    >>> import numpy as np
    >>> winners(np.array([[0.1, 0.7], [0.5, 0.5]])).tolist()
    [1, 0]
    """
    if isinstance(capsules, np.ndarray):
        lengths = np.linalg.norm(capsules, axis=-1) if capsules.ndim == 3 else capsules
        return lengths.argmax(axis=-1)
    lengths = length(capsules) if len(capsules.shape) == 3 else capsules
    return ops.argmax(lengths, axis=-1)


def winner_alone(capsules):
    """Capsules (N, J, E) with all but the longest of each image set to zero.

    Examples:

    >>> alone = winner_alone(ops.convert_to_tensor([[[0.25, 0.0], [0.0, 0.5]]]))
    >>> ops.convert_to_numpy(alone).tolist()
    [[[0.0, 0.0], [0.0, 0.5]]]
    """
    chosen = ops.one_hot(winners(capsules), capsules.shape[1], dtype=capsules.dtype)
    return capsules * chosen[..., None]


def longest(lengths, n):
    """The `n` longest capsules of each image, longest first; of equally long ones the first.

    Args:
        lengths: Array (N, J).
        n: int, at most J.

    Returns:
        Integer array (N, n).

    Examples:

    >>> longest(np.array([[0.1, 0.7, 0.3], [0.5, 0.5, 0.2]]), 2).tolist()
    [[1, 2], [0, 1]]
    """
    return np.argsort(-lengths, axis=-1, kind="stable")[:, :n]


def are_longest(lengths, labels):
    """Which labels are among the longest capsules of their image, as many as it has labels.

    Args:
        lengths: Array (N, J).
        labels: Integer array (N,), or (N, T) where images show T classes each.

    Returns:
        Boolean array of the shape of `labels`.

    Examples:

    >>> lengths = np.array([[0.1, 0.7, 0.3]])
    >>> are_longest(lengths, np.array([[2, 0]])).tolist(), are_longest(lengths, np.array([2]))
    ([[True, False]], array([False]))
    """
    each = labels.reshape(len(labels), -1)
    return are_among(each, longest(lengths, each.shape[1])).reshape(labels.shape)


def are_among(classes, others):
    """Which classes are among other ones of the same image.

    Args:
        classes: Integer array (N, S).
        others: Integer array (N, T).

    Returns:
        Boolean array (N, S).

    Examples:

    >>> are_among(np.array([[1, 2]]), np.array([[2, 3, 4]])).tolist()
    [[False, True]]
    """
    return np.any(classes[:, :, None] == others[:, None], axis=-1)


def named_rightly(labels, lengths):
    """Whether every class of an image has a longer capsule than every other class.

    Args:
        labels: Tensor (B, J) of zeros and ones.
        lengths: Tensor (B, J).

    Returns:
        Tensor (B,) of zeros and ones.

    Examples:

    >>> named_rightly(np.array([[1, 1, 0]]), np.array([[0.5, 0.2, 0.3]])).numpy().tolist()
    [0.0]
    """
    is_present = ops.cast(labels, "float32") > 0
    lengths = ops.cast(lengths, "float32")
    present = ops.min(ops.where(is_present, lengths, 2.0), axis=-1, initial=2.0)
    absent = ops.max(ops.where(is_present, -1.0, lengths), axis=-1, initial=-1.0)
    return ops.cast(present > absent, "float32")
