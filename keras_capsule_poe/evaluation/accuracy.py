"""Accuracy, errors and confusion of a classifier."""

import math

import numpy as np

from keras_capsule_poe.errors import BadUse

# 97.5% quantile of the standard Gaussian.
DEVIATIONS = 1.959963984540054


def classification_figures(found, images):
    """Return `accuracy`, `errors` per class and `confusion` of predictions of labelled images."""
    if images.labels is None or images.labels.ndim > 1:
        received = "no labels" if images.labels is None else f"labels {images.labels.shape}"
        raise BadUse(f"Accuracy needs one label an image. Received: {received}")
    return {
        "accuracy": accuracy_of(found["classes"] == images.labels),
        "errors": class_errors(images.labels, found["classes"], images.class_names),
        "confusion": confusion(images.labels, found["classes"], images.class_names),
    }


def accuracy_of(is_right):
    """Return the accuracy of Boolean `is_right` (N,) with its Wilson interval."""
    right, n = int(np.sum(is_right)), len(is_right)
    low, high = wilson_interval(right, n)
    return {"accuracy": right / n, "low": low, "high": high, "images": n}


def error_of(is_right):
    """Return the error rate of Boolean `is_right` (N,) with its Wilson interval."""
    wrong, n = int(np.sum(~is_right)), len(is_right)
    low, high = wilson_interval(wrong, n)
    return {"error": wrong / n, "low": low, "high": high, "wrong": wrong, "images": n}


def wilson_interval(right, n):
    """Return the 95% confidence interval of a proportion (Wilson, 1927)."""
    share, z = right / n, DEVIATIONS
    middle = share + z**2 / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    ends = ((middle + side * spread) / (1 + z**2 / n) for side in (-1, 1))
    low, high = (min(max(end, 0.0), 1.0) for end in ends)
    # Rounding would miss the exact ends zero and one.
    return low if right else 0.0, high if right < n else 1.0


def confusion(labels, named, class_names=None):
    """Return the image counts as a dict by true class of dicts by predicted class."""
    names = _names(labels, named, class_names)
    classes = list(names)
    return {
        names[label]: {
            names[other]: int(np.sum((labels == label) & (named == other))) for other in classes
        }
        for label in classes
    }


def class_errors(labels, named, class_names=None):
    """Return `error_of` the images of each class that has any."""
    names = _names(labels, labels, class_names)
    return {name: error_of(named[labels == label] == label) for label, name in names.items()}


def worst_images(found, labels, most=20):
    """Return (indices, labels, predictions) of wrong images, the most confident first."""
    named = found["classes"].astype("int64")
    wrong = np.flatnonzero(named != labels)
    surest = found["probabilities"].max(axis=1)[wrong]
    wrong = wrong[np.argsort(-surest, kind="stable")][:most]
    return wrong, labels[wrong], named[wrong]


def worst_of_each(found, labels, most=10):
    """Return {label: (indices, predictions)} of wrong images, the most confident first."""
    wrong, missed, named = worst_images(found, labels, most=len(labels))
    each = {label: np.flatnonzero(missed == label)[:most] for label in np.unique(missed).tolist()}
    return {label: (wrong[rows], named[rows]) for label, rows in each.items()}


def _names(labels, named, class_names):
    """Return the names of the classes that occur, by label."""
    classes = np.unique(np.concatenate([labels, named])).tolist()
    known = range(len(class_names or ()))
    return {label: str(class_names[label] if label in known else label) for label in classes}
