"""How well a classifier names all classes of images that show several, as MultiMNIST's pairs."""

import numpy as np

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.accuracy import class_errors, wilson_interval
from keras_capsule_poe.functions.winners import are_longest, longest


def pair_figures(model, images):
    """Figures of a classifier on images of T classes each: are these its T most probable ones?

    Args:
        model: `CapsuleClassifier`.
        images: `ImageSet` with labels (N, T).

    Returns:
        dict: `pairs`, the `error` of a `pair`, that any of its labels is missed, and of a single
        `digit`, each with its 95% interval `low` and `high` (Wilson; it takes the digits of a
        pair for independent), how many are `wrong` and `of` how many; and `errors`, for each
        class the share of its digits that are missed, see `class_errors`.

    Examples:

    >>> from keras_capsule_poe.data import ImageSet
    >>> class First:
    ...     def classify(self, images):
    ...         return {"probabilities": images[:, 0, :, 0]}
    >>> pixels = np.array([9, 5, 1], np.uint8).reshape(1, 1, 3, 1).repeat(2, axis=0)
    >>> found = pair_figures(First(), ImageSet(pixels, np.array([[1, 0], [0, 2]])))
    >>> found["pairs"]["pair"]["error"], found["pairs"]["digit"]["error"]
    (0.5, 0.25)
    """
    found = are_longest(_probabilities(model, images), images.labels)
    missed = np.where(found, images.labels, -1)
    return {
        "pairs": {"pair": _errors(found.all(axis=1)), "digit": _errors(found.ravel())},
        "errors": class_errors(images.labels.ravel(), missed.ravel(), images.class_names),
    }


def worst_pairs(model, images, most=20):
    """Images of which a class is missed, the surest of a wrong one first.

    Args:
        model, images: See `pair_figures`.
        most: int, how many at most.

    Returns:
        (indices, labels, named): integer arrays (M,), (M, T) and (M, T).

    Examples:

    >>> from keras_capsule_poe.data import ImageSet
    >>> class First:
    ...     def classify(self, images):
    ...         return {"probabilities": images[:, 0, :, 0]}
    >>> pixels = np.array([9, 5, 1], np.uint8).reshape(1, 1, 3, 1).repeat(2, axis=0)
    >>> images = ImageSet(pixels, np.array([[1, 0], [0, 2]]))
    >>> [part.tolist() for part in worst_pairs(First(), images)]
    [[1], [[0, 2]], [[0, 1]]]
    """
    probabilities, labels = _probabilities(model, images), images.labels
    named = longest(probabilities, labels.shape[1])
    is_label = np.any(named[:, :, None] == labels[:, None], axis=-1)
    surest = np.where(is_label, -np.inf, np.take_along_axis(probabilities, named, axis=1))
    surest = surest.max(axis=1)
    wrong = np.flatnonzero(surest > -np.inf)
    wrong = wrong[np.argsort(-surest[wrong], kind="stable")][:most]
    return wrong, labels[wrong], named[wrong]


def _probabilities(model, images):
    return map_batches(lambda batch: model.classify(batch)["probabilities"], images.images)


def _errors(is_right):
    wrong, n = int(np.sum(~is_right)), len(is_right)
    low, high = wilson_interval(wrong, n)
    return {"error": wrong / n, "low": low, "high": high, "wrong": wrong, "of": n}
