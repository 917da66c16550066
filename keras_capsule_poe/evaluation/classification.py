"""Metrics of classifiers: accuracy, errors, calibration, ensembles and McNemar's test."""

import numpy as np

from keras_capsule_poe.core.labels import are_among, are_longest, longest
from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.models.base.protocols import is_classifier


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


def error_of(is_right, unit="images"):
    """Return the error rate of Boolean `is_right` (N,) with its Wilson interval."""
    wrong, n = int(np.sum(~is_right)), len(is_right)
    low, high = wilson_interval(wrong, n)
    return {"error": wrong / n, "low": low, "high": high, "wrong": wrong, unit: n}


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


def _names(labels, named, class_names):
    """Return the names of the classes that occur, by label."""
    classes = np.unique(np.concatenate([labels, named])).tolist()
    known = range(len(class_names or ()))
    return {label: str(class_names[label] if label in known else label) for label in classes}


def worst_images(found, labels, most=20):
    """Return (indices, labels, predictions) of wrong images, the most confident first."""
    probabilities = found["probabilities"]
    if labels.ndim == 1:
        named = found["classes"].astype("int64")[:, None]
    else:
        named = longest(probabilities, labels.shape[1])
    is_label = are_among(named, labels.reshape(len(labels), -1))
    confidence = np.take_along_axis(probabilities, named, axis=1)
    confidence = np.where(is_label, -np.inf, confidence).max(axis=1)
    wrong = np.flatnonzero(confidence > -np.inf)
    wrong = wrong[np.argsort(-confidence[wrong], kind="stable")][:most]
    return wrong, labels[wrong], named[wrong].reshape(labels[wrong].shape)


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
    # The interval treats the digits of a pair as independent.
    rights = {"pair": is_named.all(axis=1), "digit": is_named.ravel()}
    return {
        "pairs": {name: error_of(right, unit="of") for name, right in rights.items()},
        "errors": class_errors(images.labels.ravel(), missed.ravel(), images.class_names),
    }


# Test images of `logit_changes`.
IMAGES = 1_000


def logit_changes(model, images, most=IMAGES):
    """Return the mean change of the routing logits by each iteration, on `most` images."""
    if len(images) > most:
        images = images[np.linspace(0, len(images) - 1, most).astype(int)]
    changes = map_batches(model.coupling_changes, images).mean(axis=0, dtype="float64")
    return {f"iteration_{t + 1}": float(change) for t, change in enumerate(changes)}


# Bins of confidence.
BINS = 15


def calibration_metrics(probabilities, labels, measure="length"):
    """Return calibration metrics of the longest capsules, also normalised to sum to one."""
    labels = labels.reshape(len(labels), -1)
    named = longest(probabilities, labels.shape[1])
    is_right = are_among(named, labels)
    kinds = {measure: probabilities}
    # The margin loss does not train lengths to be probabilities, so show normalised ones too.
    if labels.shape[1] == 1 and measure != "probability":
        total = np.maximum(probabilities.sum(axis=1, keepdims=True, dtype="float64"), 1e-300)
        kinds[f"normalised_{measure}"] = probabilities / total
    metrics, table = {}, {}
    for kind, of_class in kinds.items():
        confidence = np.take_along_axis(of_class, named, axis=1)
        metrics[kind] = reliability(confidence.ravel(), is_right.ravel())
        for bin, numbers in metrics[kind].pop("bins").items():
            row = {f"{kind}_{name}": value for name, value in numbers.items()}
            table.setdefault(bin, {}).update(row)
    return {"calibration": metrics, "reliability": table}


def reliability(confidence, is_right, bins=BINS):
    """Return the expected calibration error and its bins (Guo et al., 2017, eq. 3)."""
    confidence = np.asarray(confidence, "float64")
    is_right = np.asarray(is_right, "float64")
    edges = np.linspace(0, 1, bins + 1)
    # A bin includes its upper edge only.
    which = np.searchsorted(edges[1:-1], confidence)
    counts = np.bincount(which, minlength=bins)
    sums, rights = (np.bincount(which, of, minlength=bins) for of in (confidence, is_right))
    return {
        "error": float(np.abs(rights - sums).sum() / len(confidence)),
        "confidence": float(confidence.mean()),
        "accuracy": float(is_right.mean()),
        "bins": {
            f"{low:.2f}-{high:.2f}": {
                "images": int(n),
                "confidence": float(total / n) if n else None,
                "accuracy": float(right / n) if n else None,
            }
            for low, high, n, total, right in zip(edges, edges[1:], counts, sums, rights)
        },
    }


def mcnemar(first_right, other_right):
    """Return McNemar's exact two-sided test of two Boolean arrays (N,) of correct predictions."""
    from scipy.stats import binomtest

    only_first = int(np.sum(first_right & ~other_right))
    only_other = int(np.sum(other_right & ~first_right))
    unequal = only_first + only_other
    p = float(binomtest(only_first, unequal).pvalue) if unequal else 1.0
    return {"only_this_right": only_first, "only_other_right": only_other, "p": p}


def vote(members):
    """Return the mean `probabilities` (N, J) of several classifiers, and their `classes` (N,)."""
    lengths = {name: found["probabilities"] for name, found in members.items()}
    (first, classes), *others = ((name, found.shape[1]) for name, found in lengths.items())
    for name, other in others:
        if other != classes:
            raise BadUse(
                "An ensemble needs models of equally many classes. "
                f"Received: {first} with {classes}, {name} with {other}"
            )
    mean = np.mean(list(lengths.values()), axis=0, dtype="float64")
    return {"probabilities": mean, "classes": mean.argmax(axis=1)}


def comparison(members, labels, measures):
    """Return the accuracy of each classifier and of their ensemble, and McNemar's tests.

    The tests compare each further classifier, and the ensemble, with the first one. There is an
    ensemble only if the `measures` of all classifiers are equal.
    """
    if len(set(measures)) == 1:
        members = {**members, "ensemble": vote(members)}
    right = {name: are_right(found, labels) for name, found in members.items()}
    (_, first), *others = right.items()
    return {
        "models": {name: accuracy_of(each) for name, each in right.items()},
        "mcnemar": {name: mcnemar(first, other) for name, other in others},
    }


# Offsets (down, right) in pixels from the central window: none, then along both diagonals.
# The published code (google-research/capsule_em) uses these crops.
FARTHEST = 3
OFFSETS = (
    (0, 0),
    *(
        (down * pixels, right * pixels)
        for pixels in range(1, FARTHEST + 1)
        for down in (-1, 1)
        for right in (-1, 1)
    ),
)


def classified_crops(model, images):
    """Return mean `probabilities` and `classes` over 13 crops (Hinton et al., 2018, Sec. 5)."""
    view = getattr(model, "view", None)
    if not is_classifier(model) or view is None:
        raise BadUse(
            "Crops need a classifier that sees a window of an image. "
            f"Received: {model.TITLE}" + (" that sees all of it" if is_classifier(model) else "")
        )
    height, width = images.image_shape[:2]
    rows, columns = height - view.height, width - view.width
    if min(rows, columns) < 2 * FARTHEST:
        raise BadUse(
            f"Images must be {2 * FARTHEST} pixels larger than the window that moves in them. "
            f"Received: {height}x{width} and a window of {view.height}x{view.width}"
        )
    ask = compiled(lambda crops: model.classify(crops)["probabilities"])
    members = {}
    for offset in OFFSETS:
        top, left = (room // 2 + by for room, by in zip((rows, columns), offset))
        crops = images.images[:, top : top + view.height, left : left + view.width]
        members[offset] = {"probabilities": map_batches(ask, crops)}
    return vote(members)
