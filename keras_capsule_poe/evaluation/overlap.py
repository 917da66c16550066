"""Overlap of two sets of vectors, by balls that reach to the k-th nearest neighbour.

Precision and recall: Kynkaanniemi et al., 2019. Density and coverage: Naeem et al., 2020.
"""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from keras_capsule_poe.evaluation.distances import two_sets

# A block of this many rows against 10,000 vectors fits in the processor's cache.
ROWS = 128


def overlap(real, fake, neighbours=5, of_real=None):
    """Return precision, recall, density and coverage of `fake` (M, K) against `real` (N, K)."""
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
    """Return the squared distance (N,) of each vector to its k-th nearest other one."""
    x = np.asarray(x, "float64")
    # The nearest vector of each is itself. In tens of dimensions, search trees are slower.
    nearest = NearestNeighbors(
        n_neighbors=min(neighbours, len(x) - 1) + 1, algorithm="brute", metric="sqeuclidean"
    )
    return nearest.fit(x).kneighbors(x)[0][:, -1]


def _squares(x, y):
    """Yield squared distances from blocks of rows of x to all rows of y."""
    size = np.square(y).sum(axis=1)
    for start in range(0, len(x), ROWS):
        part = x[start : start + ROWS]
        yield np.maximum(np.square(part).sum(axis=1)[:, None] + size - 2 * part @ y.T, 0)
