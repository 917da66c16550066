"""Whether one classifier is better than another on the same images."""

import numpy as np
from scipy.stats import binomtest

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.winners import are_longest


def against(model, other, images):
    """Two classifiers on the same labelled images, by McNemar's exact test.

    Args:
        model, other: `CapsuleClassifier`.
        images: `ImageSet` with labels; where an image has several, all must be named.

    Returns:
        dict: `only_this_right` and `only_other_right`, numbers of images; `p`, the probability of
        numbers at least as unequal if both were equally good.

    Raises:
        BadUse: If one of them names no classes, or there are no labels.

    Examples:

    >>> from keras_capsule_poe.data import ImageSet
    >>> class Dark:
    ...     def classify(self, images):
    ...         return {"classes": images[:, 0, 0, 0] * 0}
    >>> images = ImageSet(np.zeros((4, 2, 2, 1), "uint8"), np.array([0, 0, 0, 1]))
    >>> against(Dark(), Dark(), images)
    {'only_this_right': 0, 'only_other_right': 0, 'p': 1.0}

    Reference:

    - [McNemar, 1947](https://doi.org/10.1007/BF02295996)
    """
    for asked in (model, other):
        if not callable(getattr(asked, "classify", None)):
            raise BadUse(f"Only models that name classes are compared. Received: {asked.TITLE}")
    if images.labels is None:
        raise BadUse("Accuracy needs labels. Received: images without labels")
    return mcnemar(*(_is_right(asked, images) for asked in (model, other)))


def _is_right(model, images):
    """Whether each image's class is named, or all its classes: boolean (N,)."""
    labels = images.labels
    key = "classes" if labels.ndim == 1 else "probabilities"
    found = map_batches(lambda batch: model.classify(batch)[key], images.images)
    return found == labels if labels.ndim == 1 else are_longest(found, labels).all(axis=1)


def mcnemar(this_right, other_right):
    """McNemar's exact test, two-sided, of who was right about the same images.

    Args:
        this_right, other_right: Boolean arrays (N,).

    Returns:
        dict, see `against`.

    Examples:

    >>> mcnemar(np.array([True] * 9), np.array([False] * 8 + [True]))["p"]
    0.0078125
    """
    only_this = int(np.sum(this_right & ~other_right))
    only_other = int(np.sum(other_right & ~this_right))
    unequal = only_this + only_other
    p = float(binomtest(only_this, unequal).pvalue) if unequal else 1.0
    return {"only_this_right": only_this, "only_other_right": only_other, "p": p}
