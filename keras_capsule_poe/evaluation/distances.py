"""FID and KID formulas for any two sets of feature vectors."""

import numpy as np

from keras_capsule_poe.functions.checks import whole_number


def frechet_distance(x, y):
    """Return |mu_x - mu_y|^2 + tr(C_x + C_y - 2 (C_x C_y)^(1/2)) (Heusel et al., 2017)."""
    x, y = two_sets(x, y)
    mean = x.mean(axis=0) - y.mean(axis=0)
    cov_x, cov_y = (np.atleast_2d(np.cov(a, rowvar=False)) for a in (x, y))
    values, vectors = np.linalg.eigh(cov_x)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    # (C_x C_y)^(1/2) has the trace of (C_x^(1/2) C_y C_x^(1/2))^(1/2), which is symmetric.
    inner = np.linalg.eigvalsh(root @ cov_y @ root)
    cross = np.sqrt(np.maximum(inner, 0)).sum()
    return float(max(0.0, mean @ mean + np.trace(cov_x) + np.trace(cov_y) - 2 * cross))


def kernel_distance(x, y, subsets=20, size=1000, seed=0):
    """Return the unbiased squared MMD with kernel (x.y / K + 1)^3, and its standard error."""
    x, y = two_sets(x, y)
    n = min(len(x), len(y))
    if n < 4:
        raise ValueError(f"`x` and `y` must have four vectors or more. Received: {n}")
    whole_number("subsets", subsets, least=2)
    whole_number("size", size, least=2)
    random = np.random.default_rng(seed)

    def estimates(size):
        return [
            _discrepancy(*(a[random.choice(len(a), size, replace=False)] for a in (x, y)))
            for _ in range(subsets)
        ]

    found = estimates(min(size, n))
    # Subsets overlap, so their spread is not that of fresh draws. The delete-d jackknife
    # (Shao & Wu, 1989) corrects for this. It uses subsets of at most half a set.
    part = min(size, n // 2)
    spread = np.std(found if part == size else estimates(part), ddof=1)
    return float(np.mean(found)), float(spread * np.sqrt(part / (n - part)))


def _discrepancy(x, y):
    n, k = x.shape
    xx, yy, xy = (_cubes(a @ b.T / k + 1) for a, b in ((x, x), (y, y), (x, y)))
    within = sum((m.sum() - np.trace(m)) / (n * (n - 1)) for m in (xx, yy))
    return within - 2 * xy.mean()


def _cubes(x):
    # NumPy's power is slower than two products.
    return x * x * x


def two_sets(x, y):
    """Return two sets of vectors as float64 arrays (N, K) and (M, K), or raise ValueError."""
    x, y = np.asarray(x, "float64"), np.asarray(y, "float64")
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise ValueError(
            "Two sets of two or more vectors of one dimension are needed. "
            f"Received: shapes {x.shape} and {y.shape}"
        )
    return x, y
