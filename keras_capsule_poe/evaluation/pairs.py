"""How well a classifier names all classes of images that show several, as MultiMNIST's pairs."""

import numpy as np

from keras_capsule_poe.evaluation.accuracy import class_errors, wilson_interval
from keras_capsule_poe.functions.winners import are_among, are_longest, longest


def pair_figures(found, images):
    """Figures of a classifier on images of T classes each: are these its T most probable ones?

    Args:
        found: dict of `classified`, what it says of them.
        images: `ImageSet` with labels (N, T).

    Returns:
        dict: `pairs`, the `error` of a `pair`, that any of its labels is missed, and of a single
        `digit`, each with its 95% interval `low` and `high` (Wilson; it takes the digits of a
        pair for independent), how many are `wrong` and `of` how many; and `errors`, for each
        class the share of its digits that are missed, see `class_errors`.

    Examples:

    >>> from keras_capsule_poe.data import ImageSet
    >>> said = {"probabilities": np.array([[0.9, 0.5, 0.1]] * 2)}
    >>> labels = np.array([[1, 0], [0, 2]])
    >>> found = pair_figures(said, ImageSet(np.zeros((2, 1, 3, 1), "uint8"), labels))
    >>> found["pairs"]["pair"]["error"], found["pairs"]["digit"]["error"]
    (0.5, 0.25)
    """
    is_named = are_longest(found["probabilities"], images.labels)
    missed = np.where(is_named, images.labels, -1)
    return {
        "pairs": {"pair": _errors(is_named.all(axis=1)), "digit": _errors(is_named.ravel())},
        "errors": class_errors(images.labels.ravel(), missed.ravel(), images.class_names),
    }


def worst_pairs(found, labels, most=20):
    """Images of which a class is missed, the surest of a wrong one first.

    Args:
        found: dict of `classified`.
        labels: Integer array (N, T).
        most: int, how many at most.

    Returns:
        (indices, labels, named): integer arrays (M,), (M, T) and (M, T).

    Examples:

    >>> found = {"probabilities": np.array([[0.9, 0.5, 0.1]] * 2)}
    >>> [part.tolist() for part in worst_pairs(found, np.array([[1, 0], [0, 2]]))]
    [[1], [[0, 2]], [[0, 1]]]
    """
    probabilities = found["probabilities"]
    named = longest(probabilities, labels.shape[1])
    is_label = are_among(named, labels)
    surest = np.where(is_label, -np.inf, np.take_along_axis(probabilities, named, axis=1))
    surest = surest.max(axis=1)
    wrong = np.flatnonzero(surest > -np.inf)
    wrong = wrong[np.argsort(-surest[wrong], kind="stable")][:most]
    return wrong, labels[wrong], named[wrong]


def _errors(is_right):
    wrong, n = int(np.sum(~is_right)), len(is_right)
    low, high = wilson_interval(wrong, n)
    return {"error": wrong / n, "low": low, "high": high, "wrong": wrong, "of": n}
