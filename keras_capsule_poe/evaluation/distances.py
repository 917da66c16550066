"""How far one set of vectors lies from another: Frechet and kernel distance."""

import numpy as np

from keras_capsule_poe.functions.checks import whole_number


def frechet_distance(x, y):
    """Frechet distance of the Gaussians fitted to two sets of vectors.

    |mu_x - mu_y|^2 + tr(C_x + C_y - 2 (C_x C_y)^(1/2)).

    Args:
        x: Array (N, K).
        y: Array (M, K).

    Returns:
        float, zero for equal means and covariances.

    Raises:
        ValueError: If a set has fewer than two vectors, or the dimensions differ.

    Examples:

    >>> x = np.array([[0.0], [1.0]])
    >>> frechet_distance(x, x + 2)
    4.0

    Reference:

    - [Heusel et al., 2017](https://arxiv.org/abs/1706.08500)
    """
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
    """Squared maximum mean discrepancy with the kernel (x.y / K + 1)^3, without bias.

    Args:
        x: Array (N, K).
        y: Array (M, K).
        subsets: int, how many random subsets to average over.
        size: int, vectors in a subset, at most. Where the smaller set has fewer, each subset is
            all of that set: the estimate keeps its mean, and has the error of fewer vectors.
        seed: int.

    Returns:
        float mean over the subsets, which may be slightly below zero, and its float standard
        error: that of other draws of both sets, not of other subsets of these.

    Raises:
        ValueError: If a set has fewer than four vectors.

    Examples:

    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> kernel_distance(x, x + 1)[0] > kernel_distance(x, x)[0]
    True

    Reference:

    - [Binkowski et al., 2018](https://arxiv.org/abs/1801.01401)
    - [Shao & Wu, 1989](https://doi.org/10.1214/aos/1176347263), the standard error
    """
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
    # Subsets overlap, so their spread is not that of fresh draws: the delete-d jackknife, from
    # halves where the subsets are larger.
    part = min(size, n // 2)
    spread = np.std(found if part == size else estimates(part), ddof=1)
    return float(np.mean(found)), float(spread * np.sqrt(part / (n - part)))


def _discrepancy(x, y):
    n, k = x.shape
    xx, yy, xy = (_cubes(a @ b.T / k + 1) for a, b in ((x, x), (y, y), (x, y)))
    within = sum((m.sum() - np.trace(m)) / (n * (n - 1)) for m in (xx, yy))
    return within - 2 * xy.mean()


def _cubes(x):
    # NumPy takes a power number by number, which is slower than two products.
    return x * x * x


def two_sets(x, y):
    """Two sets of vectors as float64 arrays (N, K) and (M, K).

    Raises:
        ValueError: If one has fewer than two, or the dimensions differ.

    Examples:

    >>> [x.dtype for x in two_sets([[1], [2]], [[3], [4]])]
    [dtype('float64'), dtype('float64')]
    """
    x, y = np.asarray(x, "float64"), np.asarray(y, "float64")
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise ValueError(
            "Two sets of two or more vectors of one dimension are needed. "
            f"Received: shapes {x.shape} and {y.shape}"
        )
    return x, y
