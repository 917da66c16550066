"""FID and KID formulas for any two sets of feature vectors."""

import numpy as np
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from keras_capsule_poe.core.numerics import whole_number
from keras_capsule_poe.data.mapping import to_pixels


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


ROWS = 2_000


def neighbour_accuracy(x_train, y_train, x_test, y_test, neighbours=5):
    """Return the test accuracy of nearest neighbours on standardised inputs."""
    # In hundreds of dimensions, search trees are slower than brute force.
    nearest = KNeighborsClassifier(min(neighbours, len(x_train)), algorithm="brute")
    return float(
        make_pipeline(StandardScaler(), nearest).fit(x_train, y_train).score(x_test, y_test)
    )


def nearest_training_distance(images, train_images):
    """Return the distance (M,) to the nearest training image, and its index (M,)."""
    images = np.asarray(images)
    if images.shape[1:] != train_images.shape[1:] or not min(len(images), len(train_images)):
        raise ValueError(
            "`images` and `train_images` must be one or more images of one shape. "
            f"Received: shapes {images.shape} and {train_images.shape}"
        )
    parts = [_nearest(images[i : i + ROWS], train_images) for i in range(0, len(images), ROWS)]
    distance, index = (np.concatenate(found) for found in zip(*parts))
    return distance, index


def memorisation(samples, usual, train_images):
    """Compare distances to training images of samples and of held-out images."""
    near, _ = nearest_training_distance(samples, train_images)
    sample_distance, held_out_distance = float(np.median(near)), float(np.median(usual))
    return {
        "sample_distance": sample_distance,
        "held_out_distance": held_out_distance,
        "relative_distance": sample_distance / held_out_distance if held_out_distance else None,
        # About 0.01 for real images.
        "copies": float(np.mean(near < np.quantile(usual, 0.01))),
    }


def _nearest(images, train_images):
    """Return distance and index of the nearest training image, a block of these at a time."""
    x, every = _rows(images), np.arange(len(images))
    least, index = np.full(len(x), np.inf, "float32"), np.zeros(len(x), int)
    for start in range(0, len(train_images), ROWS):
        y = _rows(train_images[start : start + ROWS])
        # |x - y|^2 without |x|^2, which does not change the order.
        squares = np.square(y).sum(axis=1) - 2 * (x @ y.T)
        nearest = squares.argmin(axis=1)
        closer = squares[every, nearest] < least
        least[closer] = squares[every, nearest][closer]
        index[closer] = start + nearest[closer]
    # Not from the expanded square, which is only rounding error for a copy.
    return np.linalg.norm(x - _rows(train_images[index]), axis=1), index


def _rows(images):
    """Return images as float32 rows of pixels in [0, 1]."""
    pixels = to_pixels(images) if images.dtype == np.uint8 else images.astype("float32")
    return pixels.reshape(len(images), -1)


# A block of this many rows against 10,000 vectors fits in the processor's cache.
OVERLAP_ROWS = 128


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
    for start in range(0, len(x), OVERLAP_ROWS):
        part = x[start : start + OVERLAP_ROWS]
        yield np.maximum(np.square(part).sum(axis=1)[:, None] + size - 2 * part @ y.T, 0)
