"""Errors of a classifier on images of several classes, such as MultiMNIST pairs."""

import numpy as np

from keras_capsule_poe.evaluation.accuracy import class_errors, wilson_interval
from keras_capsule_poe.functions.winners import are_among, are_longest, longest


def pair_figures(found, images):
    """Return the errors of whole pairs and of single digits, and the `errors` per class."""
    is_named = are_longest(found["probabilities"], images.labels)
    missed = np.where(is_named, images.labels, -1)
    return {
        "pairs": {"pair": _errors(is_named.all(axis=1)), "digit": _errors(is_named.ravel())},
        "errors": class_errors(images.labels.ravel(), missed.ravel(), images.class_names),
    }


def worst_pairs(found, labels, most=20):
    """Return (indices, labels, predictions) of wrong images, the most confident first."""
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
    # The interval treats the digits of a pair as independent.
    low, high = wilson_interval(wrong, n)
    return {"error": wrong / n, "low": low, "high": high, "wrong": wrong, "of": n}
