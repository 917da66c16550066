"""How good single-capsule samples are, as a classifier of the data set sees them."""

import numpy as np

from keras_capsule_poe.evaluation.classifier import accuracy, trained_judge
from keras_capsule_poe.evaluation.distances import (
    density_and_coverage,
    frechet_distance,
    kernel_distance,
)
from keras_capsule_poe.evaluation.neighbours import memorising, nearest_training_distance
from keras_capsule_poe.evaluation.sources import image_sources

CONFIDENT = 0.9
# Enough samples for a median and a small quantile; each is compared with all training images.
MEMORISING = 2_000


def sample_figures(product, data, samples=10_000, seed=0, cache=None):
    """Figures of everything that can stand in for a real image.

    Args:
        product: `ProductOfExpertCapsules`.
        data: `ImageData` with labels.
        samples: int, how many of each kind, and how many test images; at most those there are.
        seed: int.
        cache: Folder of the classifier, see `trained_judge`.

    Returns:
        dict: `classifier_accuracy` on the test images; and for each of `image_sources` a dict of
        `judged`, `compared` with the test images, and for single capsules `by_column`.
    """
    judge = trained_judge(data.train, cache)
    # Coverage and distances depend on how many are compared: as many of each kind.
    samples = min(samples, len(data.test), len(data.train))
    test = data.test.head(samples)
    real, _ = judge.judge(test.images)
    some = slice(None, MEMORISING)
    usual, _ = nearest_training_distance(test.images[some], data.train.images)
    figures = {"classifier_accuracy": accuracy(judge, test)}
    for name, draw in image_sources(product, data, len(test), samples, seed).items():
        images, capsule = draw()
        features, classes = judge.judge(images)
        figures[name] = {**judged(classes), **compared(real, features)}
        if capsule is not None:
            figures[name] |= by_column(classes, capsule)
        if name in ("visited", "joint", "gaussian_mixture"):
            figures[name] |= memorising(images[some], usual, data.train.images)
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
    counts = [
        np.bincount(named[capsule == j], minlength=classes.shape[1]) for j in np.unique(capsule)
    ]
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
