"""Metrics of a model on inputs that it is not trained on."""

import numpy as np

from keras_capsule_poe.data.streams import sequential_batches


def figures(model, x, at_once):
    """Return a compiled model's metrics, a dict of floats, averaged over inputs x (N, ...)."""
    # For few inputs a pipeline takes longer than the model. Keras' own pipeline may wait at its end
    # for the thread that tunes it, see `AHEAD`.
    if len(x) <= at_once:
        return model.test_on_batch(x, return_dict=True)
    return model.evaluate(sequential_batches(x, at_once), verbose=0, return_dict=True)


SATURATED, OFF = 0.95, 1e-3
# A barely trained model is about as good as the mean of other rows.
MARGIN = 1.1
# Inputs of mean zero have this error if nothing was learned.
NOTHING = 0.98
# One capsule wins more images than this if the others are of no use.
ALONE = 0.99
# Fewer held-out images say nothing about a classifier.
FEWEST = 50


def worse_than_mean(x, error):
    """Return a warning in a list if the relative error is that of the mean of x (N, ...)."""
    x = np.asarray(x, "float32")
    size, of_mean = np.sum(x**2), np.sum((x - x.mean(axis=0)) ** 2)
    # Not a ratio, because all rows may be zero (black images).
    if error * size <= MARGIN * of_mean and not (error > NOTHING and size):
        return []
    bar = of_mean / size if size else 0.0
    return [f"it learned nothing: relative error {error:.3g}, that of the mean is {bar:.3g}"]


def off_or_saturated(probability):
    """Return a warning in a list if the mean probability of the experts is near zero or one."""
    if OFF <= probability <= SATURATED:
        return []
    state = "on" if probability > SATURATED else "off"
    return [f"every expert is {state} for every image: mean probability {probability:.3g}"]


def one_winner(shares):
    """Return a warning in a list if one of several capsules wins all images."""
    if len(shares) < 2 or max(shares) <= ALONE:
        return []
    return [f"one capsule wins {max(shares):.0%} of the images, the others are not used"]


def no_better_than_commonest(labels, accuracy):
    """Return a warning in a list if the accuracy is at most the commonest label's share."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or len(labels) < FEWEST:
        return []
    share = np.unique(labels, return_counts=True)[1].max() / len(labels)
    if accuracy > share:
        return []
    return [
        f"it learned nothing: accuracy {accuracy:.3g}, that of the most frequent class is "
        f"{share:.3g}"
    ]


def warn(run, stage, found):
    """Report warnings of a stage; return `{"complaints": lines}` for its metrics, or {}."""
    given = run.settings.numbers_given(stage)
    more = f", or other values than {given}" if given else ""
    lines = [
        f"{text}. Train longer, or with a lower learning rate of the {stage}{more}"
        for text in found
    ]
    for line in lines:
        run.reporter.note(f"{stage}: {line}")
    return {"complaints": lines} if lines else {}
