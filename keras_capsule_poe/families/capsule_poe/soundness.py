"""Training that ended, without a NaN, in maps that are of no use: said in one line."""

import numpy as np

from keras_capsule_poe.metrics import relative_error

SATURATED = 0.95


def complaints(x, error, probability=None):
    """What is wrong with the maps of a stage that is done.

    Args:
        x: Array (N, I, D), held-out primary capsules.
        error: float, relative squared error of their reconstructions.
        probability: float, mean probability that an expert is on; None where there is none.

    Returns:
        list of str, empty where nothing is wrong.

    Examples:

    >>> x = np.array([[[1.0]], [[3.0]]])
    >>> complaints(x, error=0.1, probability=0.3)
    []
    >>> complaints(x, error=7.0)
    ['it reconstructs worse than the mean does: relative error 7, the mean 0.2']
    """
    found = []
    mean = np.broadcast_to(np.mean(x, axis=0), np.shape(x))
    bar = float(relative_error(mean, x))
    if not error <= bar:
        found.append(
            f"it reconstructs worse than the mean does: relative error {error:.3g}, the mean "
            f"{bar:.3g}"
        )
    if probability is not None and probability > SATURATED:
        found.append(
            f"every expert is on for every image, with probability {probability:.3g} on average: "
            "they tell nothing apart"
        )
    return found


def say(run, stage, found):
    """Notes each complaint of a stage, and what may help."""
    for complaint in found:
        run.reporter.note(f"{stage}: {complaint}; a lower learning rate of the {stage} may help")
