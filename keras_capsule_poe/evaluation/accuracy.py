"""Predictions of classifiers, computed once and shared by all metrics."""

import numpy as np

from keras_capsule_poe.core.routing import are_among, are_longest, longest
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse


def is_classifier(model):
    """Return True if a model has the `classify` of a `CapsuleClassifier`."""
    return callable(getattr(model, "classify", None))


def measure_of(model):
    """Return the `MEASURE` of a classifier's probabilities, `"length"` by default."""
    return getattr(model, "MEASURE", "length")


def shows_several(images):
    """Return True if each image of an `ImageSet` has several labels."""
    return images.labels is not None and images.labels.ndim > 1


def classified(model, images):
    """Return the `probabilities` (N, J) and `classes` (N,) of the images of an `ImageSet`."""
    if not is_classifier(model):
        raise BadUse(f"Only classifiers have predictions. Received: {model.TITLE}")

    def answers(batch):
        found = model.classify(batch)
        return {name: found[name] for name in ("probabilities", "classes")}

    return map_batches(answers, images.images)


def are_right(found, labels):
    """Return True for each image (N,) whose labels (N,) or (N, T) are all predicted."""
    if labels is None:
        raise BadUse("Accuracy needs labels. Received: images without labels")
    if labels.ndim == 1:
        return found["classes"] == labels
    return are_longest(found["probabilities"], labels).all(axis=1)


def classification_metrics(found, images):
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
    from scipy.stats import binomtest

    return tuple(map(float, binomtest(right, n).proportion_ci(method="wilson")))


def confusion(labels, named, class_names=None):
    """Return the image counts as a dict by true class of dicts by predicted class."""
    from sklearn.metrics import confusion_matrix

    names = _names(labels, named, class_names)
    counts = confusion_matrix(labels, named, labels=list(names))
    return {
        name: dict(zip(names.values(), row)) for name, row in zip(names.values(), counts.tolist())
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


IMAGES = 1_000


def logit_changes(model, images, most=IMAGES):
    """Return the mean change of the routing logits by each iteration, on `most` images."""
    if len(images) > most:
        images = images[np.linspace(0, len(images) - 1, most).astype(int)]
    changes = map_batches(model.coupling_changes, images).mean(axis=0, dtype="float64")
    return {f"iteration_{t + 1}": float(change) for t, change in enumerate(changes)}


def has_views(images):
    """Return True if an `ImageSet` marks which images are of novel viewpoints."""
    return "novel" in images.extras


def view_metrics(found, images):
    """Return `error_of` familiar and of novel viewpoints (Hinton et al., 2018, Sec. 5.1)."""
    is_right, is_novel = are_right(found, images.labels), images.extras["novel"].astype(bool)
    views = {"familiar": is_right[~is_novel], "novel": is_right[is_novel]}
    return {name: error_of(right) for name, right in views.items() if len(right)}


def pair_metrics(found, images):
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
