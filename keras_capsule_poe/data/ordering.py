"""Random orders and generators that depend on their arguments alone."""

import numpy as np

from keras_capsule_poe.errors import DataError


def epoch_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order in which an epoch visits the images.

    The order depends on the arguments alone, so a resumed run visits the same images as an
    uninterrupted run.

    Args:
        n: int, number of images.
        seed: non-negative int.
        epoch: non-negative int.

    Returns:
        int64 array (n,), a permutation of 0 .. n - 1.

    Raises:
        ValueError: If an argument is negative.

    Examples:

    >>> sorted(epoch_order(5, seed=0, epoch=1).tolist())
    [0, 1, 2, 3, 4]
    """
    if min(n, seed, epoch) < 0:
        raise ValueError(
            "`n`, `seed` and `epoch` must be at least 0. "
            f"Received: n={n}, seed={seed}, epoch={epoch}."
        )
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    return generator.permutation(n).astype(np.int64, copy=False)


def generator(seed, epoch, step, purpose):
    """Return a random generator for these arguments; each `purpose` has its own stream."""
    if min(seed, epoch, step) < 0 or purpose < 1:
        raise ValueError(
            "`seed`, `epoch` and `step` must be at least 0, and `purpose` at least 1. "
            f"Received: seed={seed}, epoch={epoch}, step={step}, purpose={purpose}."
        )
    # Zeros at the end have no effect: [seed, epoch, 0, 0] would repeat `epoch_order`.
    words = np.random.SeedSequence([seed, epoch, step, purpose])
    return np.random.Generator(np.random.Philox(words))


def by_class(labels, seed):
    """Return a random order of images in which any stretch has about the same shares of classes.

    The last images are one of each class, if it has two or more, so that they can be held out.

    Args:
        labels: int array (N,), the class of each image. With one class the order is random.
        seed: non-negative int.
    """
    order = epoch_order(len(labels), seed, 0)
    classes, number, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
    if len(classes) < 2:
        return order
    rank = _ranks(number)
    phase = generator(seed, 0, 0, 1).random(len(classes))
    place = (rank + phase[number]) / counts[number]
    is_last = (rank == counts[number] - 1) & (counts[number] > 1)
    return order[np.lexsort((place, is_last))]


def hold_out(labels, fraction, seed):
    """Split images by class at random into training and test indices.

    A class of two or more images has at least one on each side.

    Args:
        labels: int array (N,), the class of each image, or equal numbers without classes.
        fraction: float, share of test images.
        seed: non-negative int.
    """
    n = len(labels)
    if n < 2:
        raise DataError(
            f"there must be at least 2 images, so that one can be kept to test with. Received: {n}."
        )
    order = epoch_order(n, seed, 0)
    classes, number, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
    if len(classes) < 2 or counts.max() < 2:
        tests = min(max(round(n * fraction), 1), n - 1)
        return order[tests:], order[:tests]
    tests = np.clip(np.rint(counts * fraction), counts > 1, counts - 1)
    is_test = _ranks(number) < tests[number]
    test, train = order[is_test], order[~is_test]
    return train[by_class(labels[train], seed)], test[by_class(labels[test], seed)]


def _ranks(number):
    """Return how many images of the same class come before each one."""
    order = np.argsort(number, kind="stable")
    firsts = np.cumsum(np.bincount(number)) - np.bincount(number)
    ranks = np.empty(len(number), np.int64)
    ranks[order] = np.arange(len(number)) - firsts[number[order]]
    return ranks
