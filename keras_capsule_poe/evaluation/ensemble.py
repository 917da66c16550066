"""Ensembles of classifiers by mean probability."""

import numpy as np

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.accuracy import accuracy_of
from keras_capsule_poe.evaluation.classified import are_right
from keras_capsule_poe.evaluation.mcnemar import mcnemar


def vote(members):
    """Return the mean `probabilities` (N, J) of several classifiers, and their `classes` (N,)."""
    lengths = {name: found["probabilities"] for name, found in members.items()}
    (first, classes), *others = ((name, found.shape[1]) for name, found in lengths.items())
    for name, other in others:
        if other != classes:
            raise BadUse(
                "Models that vote must name as many classes. "
                f"Received: {first} with {classes}, {name} with {other}"
            )
    mean = np.mean(list(lengths.values()), axis=0, dtype="float64")
    return {"probabilities": mean, "classes": mean.argmax(axis=1)}


def ensemble_figures(members, labels):
    """Return the accuracy of members and ensemble, and McNemar's test against the first."""
    together = vote(members)
    right = {name: are_right(found, labels) for name, found in members.items()}
    first, whole = next(iter(right.values())), are_right(together, labels)
    return {
        "ensemble": {
            **{name: accuracy_of(each) for name, each in right.items()},
            "ensemble": accuracy_of(whole),
        },
        "ensemble_against_first": mcnemar(whole, first),
    }
