"""Several classifiers that vote: the mean of what each says of a class."""

import numpy as np

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.accuracy import accuracy_of
from keras_capsule_poe.evaluation.classified import are_right
from keras_capsule_poe.evaluation.mcnemar import mcnemar


def vote(members):
    """Probabilities that are means over models, and the classes that these name.

    Sabour et al. voted with seven models on CIFAR-10, and do not say how they counted.

    Args:
        members: dict by name of dicts of `classified`, all of the same images.

    Returns:
        dict like each of them.

    Raises:
        BadUse: If they name different numbers of classes.

    Examples:

    >>> first, second = np.array([[0.6, 0.5, 0.0]]), np.array([[0.0, 0.4, 0.5]])
    >>> vote({"a": {"probabilities": first}, "b": {"probabilities": second}})["classes"].tolist()
    [1]

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Section 7
    """
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
    """How often each of several models is right, and all together.

    Args:
        members: dict by name of dicts of `classified`, the one to be compared with first.
        labels: Integer array (N,), or (N, T): all classes of an image must be named.

    Returns:
        dict: `ensemble`, for each member and for the `ensemble` its `accuracy_of`; and
        `ensemble_against_first`, McNemar's test, where "this" is the ensemble and "other" the
        first member.

    Raises:
        BadUse: If there are no labels, or the models name different numbers of classes.

    Examples:

    >>> def sure_of(label):
    ...     return {"probabilities": np.eye(3)[[label] * 4], "classes": np.full(4, label)}
    >>> members = {"a": sure_of(0), "b": sure_of(1), "c": sure_of(1)}
    >>> found = ensemble_figures(members, np.array([0, 1, 1, 1]))
    >>> found["ensemble"]["ensemble"]["accuracy"], found["ensemble_against_first"]["p"]
    (0.75, 0.625)
    """
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
