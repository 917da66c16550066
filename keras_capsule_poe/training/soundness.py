"""Training that ended, without a NaN, in weights that are of no use: said in one line."""

import numpy as np

SATURATED = 0.95
# What has learned next to nothing yet is as good as the mean of other, fewer rows.
MARGIN = 1.1
# Fewer held-out images tell nothing of a classifier.
FEWEST = 50


def worse_than_mean(x, error):
    """What is wrong with reconstructions: a list of a sentence, empty where nothing is.

    Args:
        x: Array (N, ...), held-out rows.
        error: float, relative squared error of their reconstructions; `MARGIN` times that of the
            rows' mean is no complaint.

    Examples:

    >>> x = np.array([[[1.0]], [[3.0]]])
    >>> worse_than_mean(x, error=0.1)
    []
    >>> worse_than_mean(x, error=7.0)
    ['it reconstructs worse than the mean does: relative error 7, the mean 0.2']
    """
    x = np.asarray(x, "float32")
    size, of_mean = np.sum(x**2), np.sum((x - x.mean(axis=0)) ** 2)
    # No ratio: rows may be all zero, as black images are.
    if error * size <= MARGIN * of_mean:
        return []
    bar = of_mean / size if size else 0.0
    return [
        f"it reconstructs worse than the mean does: relative error {error:.3g}, the mean {bar:.3g}"
    ]


def saturated(probability):
    """What is wrong with experts, as `worse_than_mean`.

    Args:
        probability: float, the mean over held-out rows and experts of being on.

    Examples:

    >>> saturated(0.4)
    []
    """
    if probability <= SATURATED:
        return []
    return [
        f"every expert is on for every image, with probability {probability:.3g} on average: "
        "they tell nothing apart"
    ]


def no_better_than_commonest(labels, accuracy):
    """What is wrong with a classifier, as `worse_than_mean`.

    Args:
        labels: Integer array (N,), of held-out images; of other shapes, or of fewer than
            `FEWEST`, nothing is said.
        accuracy: float, the share of them that are named rightly.

    Examples:

    >>> labels = np.repeat([0, 0, 1, 2], 20)
    >>> no_better_than_commonest(labels, 0.75)
    []
    >>> no_better_than_commonest(labels, 0.5)
    ['it names images no better than by their commonest class: accuracy 0.5, that class 0.5']
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or len(labels) < FEWEST:
        return []
    share = np.unique(labels, return_counts=True)[1].max() / len(labels)
    if accuracy > share:
        return []
    return [
        f"it names images no better than by their commonest class: accuracy {accuracy:.3g}, that "
        f"class {share:.3g}"
    ]


def complain(run, stage, found):
    """Notes what is wrong with a stage, and keeps it.

    Args:
        run: `Run`.
        stage: str, its name.
        found: list of str.

    Returns:
        dict for the metrics of the stage: `complaints`, a list of str; empty where there are none.
    """
    given = run.config.numbers_given(stage)
    more = f", or other numbers than {given}" if given else ""
    lines = [f"{text}; a lower learning rate of the {stage} may help{more}" for text in found]
    for line in lines:
        run.reporter.note(f"{stage}: {line}")
    return {"complaints": lines} if lines else {}
