"""Classifiers that vote, several crops of each image, and McNemar's test."""

import numpy as np
from scipy.stats import binomtest

from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.accuracy import accuracy_of, are_right, is_classifier


def mcnemar(first_right, other_right):
    """Return McNemar's exact two-sided test of two Boolean arrays (N,) of correct predictions."""
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
