"""Random orders that depend on their arguments alone, never on a global state."""

import numpy as np

from keras_capsule_poe.errors import DataError


def epoch_order(n, seed, epoch):
    """The order in which epoch `epoch` visits `n` images.

    Args:
        n: number of images, at least 0.
        seed: integer of at least 0.
        epoch: integer of at least 0.

    Returns:
        `(n,)` int64 permutation of 0 .. n-1. The same three arguments always give the same
        permutation, so that a resumed run visits what the uninterrupted one would have.

    Raises:
        ValueError: if an argument is negative.

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
    """A random generator that depends on its arguments alone.

    Args:
        seed, epoch, step: Integers of at least 0.
        purpose: Integer of at least 1, so that what is drawn for different ends, and the order
            of `epoch_order`, have nothing to do with each other.

    Returns:
        `np.random.Generator`.

    Raises:
        ValueError: if an argument is out of range.

    Examples:

    >>> first, again = (generator(0, epoch=2, step=5, purpose=1) for _ in range(2))
    >>> bool(first.random() == again.random())
    True
    """
    if min(seed, epoch, step) < 0 or purpose < 1:
        raise ValueError(
            "`seed`, `epoch` and `step` must be at least 0, and `purpose` at least 1. "
            f"Received: seed={seed}, epoch={epoch}, step={step}, purpose={purpose}."
        )
    # A last word of zero would be no word: [seed, epoch, 0, 0] is [seed, epoch].
    words = np.random.SeedSequence([seed, epoch, step, purpose])
    return np.random.Generator(np.random.Philox(words))


def hold_out(n, fraction, seed):
    """Splits `n` images at random into training and test images.

    Args:
        n: number of images, at least 2.
        fraction: share of test images, in (0, 1); both parts get at least one image.
        seed: integer of at least 0.

    Returns:
        A pair of int64 arrays, the indices of the training and of the test images, in random
        order. They depend on `n`, `fraction` and `seed` only.

    Raises:
        DataError: if there are fewer than 2 images.

    Examples:

    >>> train, test = hold_out(10, fraction=0.3, seed=0)
    >>> len(train), len(test)
    (7, 3)
    """
    if n < 2:
        raise DataError(
            f"there must be at least 2 images, so that one can be kept to test with. Received: {n}."
        )
    order = epoch_order(n, seed, 0)
    tests = min(max(round(n * fraction), 1), n - 1)
    return order[tests:], order[:tests]
