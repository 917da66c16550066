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


def hold_out(n, fraction, seed):
    """Split `n` images at random into training and test indices, at least one of each."""
    if n < 2:
        raise DataError(
            f"there must be at least 2 images, so that one can be kept to test with. Received: {n}."
        )
    order = epoch_order(n, seed, 0)
    tests = min(max(round(n * fraction), 1), n - 1)
    return order[tests:], order[:tests]
