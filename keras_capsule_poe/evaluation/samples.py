"""How good single-capsule samples are, as a classifier of the data set sees them."""

import numpy as np

from keras_capsule_poe.evaluation.classifier import accuracy, trained_judge
from keras_capsule_poe.evaluation.distances import (
    density_and_coverage,
    frechet_distance,
    kernel_distance,
)
from keras_capsule_poe.sampling import sample_arrays

CONFIDENT = 0.9


def sample_figures(product, data, samples=2_000, domains=("visited", "complete"), seed=0, cache=None):
    """Figures of samples of each domain, and of real images in their place.

    Args:
        product: `ProductOfExpertCapsules`.
        data: `ImageData` with labels.
        samples: int, how many of each domain, and how many test images, at most.
        domains: See `ProductOfExpertCapsules.draw`.
        seed: int.
        cache: Folder of the classifier, see `trained_judge`.

    Returns:
        dict: `classifier_accuracy` on the test images; for each domain a dict of `judged` and
        `compared`, and the same of training images under `real`, which are what perfect
        samples would get.
    """
    judge = trained_judge(data.train, cache)
    test = data.test.head(samples)
    real, _ = judge.judge(test.images)
    chosen = np.random.default_rng(seed).permutation(len(data.train))[:samples]
    features, classes = judge.judge(data.train.images[chosen])
    figures = {"classifier_accuracy": accuracy(judge, test)}
    figures["real"] = {**judged(classes), **compared(real, features)}
    for domain in domains:
        drawn = sample_arrays(product, samples, seed, domain)
        features, classes = judge.judge(drawn["images"])
        columns = by_column(classes, drawn["capsule"])
        figures[domain] = {**judged(classes), **columns, **compared(real, features)}
    return figures


def judged(classes):
    """What class probabilities say of a set of images.

    Args:
        classes: Array (N, classes).

    Returns:
        dict: `recognised`, the share whose highest probability is over 0.9; `classes`, how
        many have 1% of the images or more; `label_entropy` of the mean, nats.
    """
    share = np.bincount(classes.argmax(axis=-1), minlength=classes.shape[1]) / len(classes)
    mean = classes.mean(axis=0, dtype="float64")
    return {
        "recognised": float(np.mean(classes.max(axis=-1) > CONFIDENT)),
        "classes": int(np.sum(share >= 0.01)),
        "label_entropy": float(-np.sum(mean * np.log(np.maximum(mean, 1e-30)))),
    }


def by_column(classes, capsule):
    """How far each capsule shows one class.

    Args:
        classes: Array (N, classes), probabilities.
        capsule: Integer array (N,).

    Returns:
        dict: `purity`, the mean over capsules of the share of their most frequent class;
        `modal_classes`, how many different classes are a capsule's most frequent one.
    """
    named = classes.argmax(axis=-1)
    counts = [np.bincount(named[capsule == j], minlength=classes.shape[1]) for j in np.unique(capsule)]
    return {
        "purity": float(np.mean([count.max() / count.sum() for count in counts])),
        "modal_classes": len({int(count.argmax()) for count in counts}),
    }


def compared(real, fake):
    """Distances between two sets of features, see `distances`."""
    density, coverage = density_and_coverage(real, fake)
    kernel, error = kernel_distance(real, fake)
    return {
        "frechet": frechet_distance(real, fake),
        "kernel_distance": kernel,
        "kernel_distance_error": error,
        "density": density,
        "coverage": coverage,
    }
