"""How two sets of vectors overlap, by balls of nearest neighbours: precision and recall."""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from keras_capsule_poe.evaluation.distances import two_sets

# A block of so many rows against ten thousand vectors stays in a processor's cache.
ROWS = 128


def overlap(real, fake, neighbours=5, of_real=None):
    """How much of the fakes lies among the real, and of the real among the fakes.

    The ball of a vector reaches to its `neighbours`-th nearest other one of its own set.
    Distances are taken a block of rows at a time, so memory is linear in the sets.

    Args:
        real: Array (N, K).
        fake: Array (M, K).
        neighbours: int, at most one less than there are vectors in either set.
        of_real: Array (N,), the `squared_radii` of the balls of `real` where they are known
            already, as with many sets of fakes.

    Returns:
        dict of float: `precision`, the share of fakes in any ball of a real one; `recall`, the
        share of the real in any ball of a fake; `density`, how many balls of real ones a fake
        lies in, on average, over `neighbours`, one for samples of the real; `coverage`, the share
        of balls of real ones that hold a fake.

    Raises:
        ValueError: If a set has fewer than two vectors, or the dimensions differ.

    Examples:

    >>> x = np.arange(8.0)[:, None]
    >>> overlap(x, x + 2, neighbours=1)
    {'precision': 0.875, 'recall': 0.875, 'density': 2.25, 'coverage': 0.875}

    Reference:

    - [Kynkaanniemi et al., 2019](https://arxiv.org/abs/1904.06991), precision and recall
    - [Naeem et al., 2020](https://arxiv.org/abs/2002.09797), density and coverage
    """
    real, fake = two_sets(real, fake)
    of_real = squared_radii(real, neighbours) if of_real is None else of_real
    of_fake = squared_radii(fake, neighbours)
    inside, start = 0, 0
    precise, recalled = np.zeros(len(fake), bool), np.zeros(len(real), bool)
    covered = np.zeros(len(real), bool)
    for squares in _squares(real, fake):
        rows = slice(start, start + len(squares))
        within = squares <= of_real[rows, None]
        inside += within.sum()
        precise |= within.any(axis=0)
        covered[rows] = within.any(axis=1)
        recalled[rows] = (squares <= of_fake).any(axis=1)
        start += len(squares)
    return {
        "precision": float(precise.mean()),
        "recall": float(recalled.mean()),
        "density": float(inside / (min(neighbours, len(real) - 1) * len(fake))),
        "coverage": float(covered.mean()),
    }


def squared_radii(x, neighbours=5):
    """Squared distance of each vector to its so many-th nearest other one.

    Args:
        x: Array (N, K).
        neighbours: int, at most one less than there are vectors.

    Returns:
        float64 array (N,).

    Examples:

    >>> squared_radii(np.array([[0.0], [1.0], [3.0]]), neighbours=1)
    array([1., 1., 4.])
    """
    x = np.asarray(x, "float64")
    # The nearest of each is itself. In tens of dimensions search trees are slower.
    nearest = NearestNeighbors(
        n_neighbors=min(neighbours, len(x) - 1) + 1, algorithm="brute", metric="sqeuclidean"
    )
    return nearest.fit(x).kneighbors(x)[0][:, -1]


def _squares(x, y):
    """Squared distances of rows of x to all of y, a few rows at a time."""
    size = np.square(y).sum(axis=1)
    for start in range(0, len(x), ROWS):
        part = x[start : start + ROWS]
        yield np.maximum(np.square(part).sum(axis=1)[:, None] + size - 2 * part @ y.T, 0)
