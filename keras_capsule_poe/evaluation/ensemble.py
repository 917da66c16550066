"""McNemar's test of two classifiers on the same images."""

import numpy as np
from scipy.stats import binomtest

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.accuracy import accuracy_of, are_right


def mcnemar(this_right, other_right):
    """Return McNemar's exact two-sided test of two Boolean arrays (N,) of correct predictions."""
    only_this = int(np.sum(this_right & ~other_right))
    only_other = int(np.sum(other_right & ~this_right))
    unequal = only_this + only_other
    p = float(binomtest(only_this, unequal).pvalue) if unequal else 1.0
    return {"only_this_right": only_this, "only_other_right": only_other, "p": p}


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
