"""Predictions of classifiers, computed once and shared by all metrics."""

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.winners import are_longest


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
        raise BadUse(f"Only models that name classes are compared. Received: {model.TITLE}")

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
