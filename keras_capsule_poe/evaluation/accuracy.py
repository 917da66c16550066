"""How well a classifier names the classes of images, and which of them it takes for another."""

import math

import numpy as np

from keras_capsule_poe.errors import BadUse

# Of a standard Gaussian 95% lies within so many deviations.
DEVIATIONS = 1.959963984540054


def classification_figures(found, images):
    """Figures of a classifier on labelled images.

    Args:
        found: dict of `classified`, what it says of them.
        images: `ImageSet` with labels.

    Returns:
        dict: `accuracy`, see `accuracy_of`; `errors` of each class, see `class_errors`; and
        `confusion`, a dict for each class of how many of its images are taken for which class.

    Raises:
        BadUse: If there are no labels, or several an image.

    Examples:

    >>> from keras_capsule_poe.data import ImageSet
    >>> images = ImageSet(np.zeros((4, 2, 2, 1), "uint8"), np.array([0, 0, 0, 1]))
    >>> classification_figures({"classes": np.zeros(4, int)}, images)["accuracy"]["accuracy"]
    0.75
    """
    if images.labels is None or images.labels.ndim > 1:
        received = "no labels" if images.labels is None else f"labels {images.labels.shape}"
        raise BadUse(f"Accuracy needs one label an image. Received: {received}")
    return {
        "accuracy": accuracy_of(found["classes"] == images.labels),
        "errors": class_errors(images.labels, found["classes"], images.class_names),
        "confusion": confusion(images.labels, found["classes"], images.class_names),
    }


def accuracy_of(is_right):
    """The share of images that are named rightly.

    Args:
        is_right: Boolean array (N,).

    Returns:
        dict: `accuracy`, its `wilson_interval` `low` and `high`, and the number of `images`.

    Examples:

    >>> accuracy_of(np.array([True, False]))["accuracy"]
    0.5
    """
    right, n = int(np.sum(is_right)), len(is_right)
    low, high = wilson_interval(right, n)
    return {"accuracy": right / n, "low": low, "high": high, "images": n}


def error_of(is_right):
    """The share of images that are named wrongly.

    Args:
        is_right: Boolean array (N,), of one or more.

    Returns:
        dict: `error`, its `wilson_interval` `low` and `high`, how many are `wrong`, and the number
        of `images`.

    Examples:

    >>> found = error_of(np.array([True, False, False]))
    >>> found["wrong"], found["images"]
    (2, 3)
    """
    wrong, n = int(np.sum(~is_right)), len(is_right)
    low, high = wilson_interval(wrong, n)
    return {"error": wrong / n, "low": low, "high": high, "wrong": wrong, "images": n}


def wilson_interval(right, n):
    """The 95% confidence interval of a share, right also near zero and one.

    Args:
        right: int, successes.
        n: int, trials, one or more.

    Returns:
        (float, float) in [0, 1].

    Examples:

    >>> low, high = wilson_interval(10, 10)
    >>> round(low, 3), round(high, 3)
    (0.722, 1.0)

    Reference:

    - [Wilson, 1927](https://doi.org/10.1080/01621459.1927.10502953)
    """
    share, z = right / n, DEVIATIONS
    middle = share + z**2 / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    ends = ((middle + side * spread) / (1 + z**2 / n) for side in (-1, 1))
    low, high = (min(max(end, 0.0), 1.0) for end in ends)
    # Rounding leaves them beside what they are.
    return low if right else 0.0, high if right < n else 1.0


def confusion(labels, named, class_names=None):
    """How many images of each class are taken for which.

    Args:
        labels: Integer array (N,).
        named: Integer array (N,), what they are taken for.
        class_names: Sequence of str by label, or `None`: the labels themselves.

    Returns:
        dict by class of dicts by class of int.

    Examples:

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), ("cat", "dog"))
    {'cat': {'cat': 1, 'dog': 1}, 'dog': {'cat': 0, 'dog': 1}}
    """
    names = _names(labels, named, class_names)
    classes = list(names)
    return {
        names[label]: {
            names[other]: int(np.sum((labels == label) & (named == other))) for other in classes
        }
        for label in classes
    }


def class_errors(labels, named, class_names=None):
    """What share of the images of each class is taken for another.

    Args:
        labels, named, class_names: See `confusion`.

    Returns:
        dict by class, of those that have images, of their `error_of`.

    Examples:

    >>> found = class_errors(np.array([0, 0, 1]), np.array([0, 1, 1]))
    >>> found["0"]["error"], found["0"]["wrong"], found["1"]["images"]
    (0.5, 1, 1)
    """
    names = _names(labels, labels, class_names)
    return {name: error_of(named[labels == label] == label) for label, name in names.items()}


def worst_images(found, labels, most=20):
    """Images that a classifier takes for another class, the surest of their wrong class first.

    Args:
        found: dict of `classified`.
        labels: Integer array (N,).
        most: int, how many at most.

    Returns:
        (indices, labels, named): integer arrays of one length.

    Examples:

    >>> p = np.array([[0.9, 0.1], [0.6, 0.1], [0.8, 0.1]])
    >>> found = {"probabilities": p, "classes": np.zeros(3, "int64")}
    >>> [part.tolist() for part in worst_images(found, np.array([0, 1, 1]))]
    [[2, 1], [1, 1], [0, 0]]
    """
    named = found["classes"].astype("int64")
    wrong = np.flatnonzero(named != labels)
    surest = found["probabilities"].max(axis=1)[wrong]
    wrong = wrong[np.argsort(-surest, kind="stable")][:most]
    return wrong, labels[wrong], named[wrong]


def worst_of_each(found, labels, most=10):
    """Of each class the images that are taken for another one, the surest of it first.

    Args:
        found, labels: See `worst_images`.
        most: int, how many of a class at most.

    Returns:
        dict by label, of those classes that have any, of (indices, named), integer arrays.

    Examples:

    >>> p = np.array([[0.9, 0.1], [0.6, 0.1], [0.8, 0.1]])
    >>> found = {"probabilities": p, "classes": np.zeros(3, "int64")}
    >>> [part.tolist() for part in worst_of_each(found, np.array([0, 1, 1]))[1]]
    [[2, 1], [0, 0]]
    """
    wrong, missed, named = worst_images(found, labels, most=len(labels))
    each = {label: np.flatnonzero(missed == label)[:most] for label in np.unique(missed).tolist()}
    return {label: (wrong[rows], named[rows]) for label, rows in each.items()}


def _names(labels, named, class_names):
    """What the classes that occur are called, by label."""
    classes = np.unique(np.concatenate([labels, named])).tolist()
    known = range(len(class_names or ()))
    return {label: str(class_names[label] if label in known else label) for label in classes}
