"""Metrics of feature vectors: FID, KID, overlap, nearest neighbours, probes and clusterings."""

import warnings

import numpy as np

from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.core.numerics import whole_number
from keras_capsule_poe.data.mapping import chunks, to_pixels

DISTANCES = (
    "FID",
    "KID",
    "KID_error",
    "precision",
    "recall",
    "density",
    "coverage",
)


def distances(real, fake, of_real=None):
    """Return FID, KID and `overlap` of two feature sets, or None values for tiny sets."""
    if min(len(real), len(fake)) < 4:
        return dict.fromkeys(DISTANCES)
    kernel, error = kernel_distance(real, fake)
    return {
        "FID": frechet_distance(real, fake),
        "KID": kernel,
        "KID_error": error,
        **overlap(real, fake, of_real=of_real),
    }


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
    xx, yy, xy = (a @ b.T / k + 1 for a, b in ((x, x), (y, y), (x, y)))
    # NumPy's power is slower than two products.
    xx, yy, xy = (m * m * m for m in (xx, yy, xy))
    within = sum((m.sum() - np.trace(m)) / (n * (n - 1)) for m in (xx, yy))
    return within - 2 * xy.mean()


def two_sets(x, y):
    """Return two sets of vectors as float64 arrays (N, K) and (M, K), or raise ValueError."""
    x, y = np.asarray(x, "float64"), np.asarray(y, "float64")
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise ValueError(
            "Two sets of two or more vectors of one dimension are needed. "
            f"Received: shapes {x.shape} and {y.shape}"
        )
    return x, y


# A block of this many rows against 10,000 vectors fits in the processor's cache.
OVERLAP_ROWS = 128


def overlap(real, fake, neighbours=5, of_real=None):
    """Return precision, recall, density and coverage of `fake` (M, K) against `real` (N, K)."""
    real, fake = two_sets(real, fake)
    of_real = squared_radii(real, neighbours) if of_real is None else of_real
    of_fake = squared_radii(fake, neighbours)
    size = np.square(fake).sum(axis=1)
    inside, precise, recalled, covered = 0, np.zeros(len(fake), bool), [], []
    for part, radii in zip(chunks(real, OVERLAP_ROWS), chunks(of_real, OVERLAP_ROWS)):
        squares = np.square(part).sum(axis=1)[:, None] + size - 2 * part @ fake.T
        squares = np.maximum(squares, 0)
        within = squares <= radii[:, None]
        inside += within.sum()
        precise |= within.any(axis=0)
        covered.append(within.any(axis=1))
        recalled.append((squares <= of_fake).any(axis=1))
    return {
        "precision": float(precise.mean()),
        "recall": float(np.concatenate(recalled).mean()),
        "density": float(inside / (min(neighbours, len(real) - 1) * len(fake))),
        "coverage": float(np.concatenate(covered).mean()),
    }


def squared_radii(x, neighbours=5):
    """Return the squared distance (N,) of each vector to its k-th nearest other one."""
    from sklearn.neighbors import NearestNeighbors

    x = np.asarray(x, "float64")
    # The nearest vector of each is itself. In tens of dimensions, search trees are slower.
    nearest = NearestNeighbors(
        n_neighbors=min(neighbours, len(x) - 1) + 1, algorithm="brute", metric="sqeuclidean"
    )
    return nearest.fit(x).kneighbors(x)[0][:, -1]


# Rows of a block of `_nearest`.
ROWS = 2_000


def nearest_training_distance(images, train_images):
    """Return the distance (M,) to the nearest training image, and its index (M,)."""
    images = np.asarray(images)
    if images.shape[1:] != train_images.shape[1:] or not min(len(images), len(train_images)):
        raise ValueError(
            "`images` and `train_images` must be one or more images of one shape. "
            f"Received: shapes {images.shape} and {train_images.shape}"
        )
    index = _nearest(images, train_images, _pixel_rows)[:, 0]
    # Not from the expanded square, which is only rounding error for a copy.
    pairs = zip(chunks(images, ROWS), chunks(index, ROWS))
    differences = (_pixel_rows(part) - _pixel_rows(train_images[rows]) for part, rows in pairs)
    return np.concatenate([np.linalg.norm(part, axis=1) for part in differences]), index


def _nearest(x, y, to_rows, neighbours=1):
    """Return the indices (M, k) of the rows of y nearest to each of x, the nearest first."""
    found = []
    for part in map(to_rows, chunks(x, ROWS)):
        index, squares = np.empty((len(part), 0), int), np.empty((len(part), 0), "float32")
        for first, others in zip(range(0, len(y), ROWS), map(to_rows, chunks(y, ROWS))):
            # |x - y|^2 without |x|^2, which does not change the order.
            new = np.square(others).sum(axis=1) - 2 * (part @ others.T)
            last = min(neighbours, len(others)) - 1
            near = np.argpartition(new, last)[:, : last + 1] if last else new.argmin(1)[:, None]
            index = np.hstack([index, first + near])
            squares = np.hstack([squares, np.take_along_axis(new, near, axis=1)])
            order = squares.argsort(axis=1, kind="stable")[:, :neighbours]
            index, squares = (np.take_along_axis(a, order, axis=1) for a in (index, squares))
        found.append(index)
    return np.concatenate(found)


def _pixel_rows(images):
    """Return images as float32 rows of pixels in [0, 1]."""
    return to_pixels(images).reshape(len(images), -1)


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


def linear_probe(x_train, y_train, x_test, y_test):
    """Return the test accuracy of multinomial logistic regression on standardised inputs.

    The regression has an L2 penalty (C = 0.1) and at most 100 iterations. Mean and variance of
    the standardisation are those of the training inputs.

    Args:
        x_train: Array (N, K), training inputs.
        y_train: Integer array (N,), training labels.
        x_test: Array (M, K), test inputs.
        y_test: Integer array (M,), test labels.

    Returns:
        float in [0, 1].

    Example:

    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> linear_probe(x, x[:, 0] > 0, x, x[:, 0] > 0)
    1.0

    Reference:

    - [Alain & Bengio, 2016](https://arxiv.org/abs/1610.01644)
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x_train, x_test = np.asarray(x_train, "float32"), np.asarray(x_test, "float32")
    with warnings.catch_warnings():
        # More iterations change only the last digits, and take minutes on many features.
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression = LogisticRegression(C=0.1, max_iter=100)
        fitted = make_pipeline(StandardScaler(), regression).fit(x_train, y_train)
    return float(fitted.score(x_test, y_test))


def neighbour_accuracy(x_train, y_train, x_test, y_test, neighbours=5):
    """Return the test accuracy of the vote of the nearest rows, on standardised inputs.

    Products in float32 take half the time of scikit-learn's classifier, which has them in float64.
    """
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(x_train)
    index = _nearest(x_test, x_train, lambda x: scaler.transform(x).astype("float32"), neighbours)
    classes, labels = np.unique(y_train, return_inverse=True)
    votes = (labels[index][..., None] == np.arange(len(classes))).sum(axis=1)
    # The first class wins a tie.
    return float(np.mean(classes[votes.argmax(axis=1)] == y_test))


def clustering_metrics(
    train, train_labels, test, test_labels, train_probabilities, test_probabilities, seed=0
):
    """Return accuracy, majority accuracy and NMI of four clusterings of the test images."""
    from sklearn.metrics import normalized_mutual_info_score

    classes = len(np.unique(train_labels))
    won = [winners(p) for p in (train_probabilities, test_probabilities)]
    group = merged_capsules(train_probabilities, classes)
    found = {
        "winning_capsule": won,
        "merged_capsules": [group[winner] for winner in won],
        "kmeans": kmeans_clusters(train, test, classes, seed),
        "graph": graph_clusters(train, test, classes, seed=seed),
    }
    return {
        name: {
            "accuracy": clustering_accuracy(test_labels, of_test),
            "majority_accuracy": majority_accuracy(of_train, train_labels, of_test, test_labels),
            "nmi": float(normalized_mutual_info_score(test_labels, of_test)),
            "clusters": len(np.unique(of_train)),
        }
        for name, (of_train, of_test) in found.items()
    }


def clustering_accuracy(labels, clusters):
    """Return the accuracy under the best one-to-one matching (Xie et al., 2016, eq. 10)."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    # Clusters without a partner count as wrong.
    table = contingency_matrix(*_pair(labels, clusters))
    matched = linear_sum_assignment(table, maximize=True)
    return float(table[matched].sum() / len(labels))


def majority_accuracy(train_clusters, train_labels, test_clusters, test_labels):
    """Return the test accuracy if a cluster predicts its most frequent training class."""
    from sklearn.metrics.cluster import contingency_matrix

    train_labels, train_clusters = _pair(train_labels, train_clusters)
    test_labels, test_clusters = _pair(test_labels, test_clusters)
    table = contingency_matrix(train_labels, train_clusters)
    majority = np.unique(train_labels)[table.argmax(axis=0)]
    name = dict(zip(np.unique(train_clusters).tolist(), majority.tolist()))
    # A test cluster that training lacks counts as wrong.
    right = [
        name.get(cluster) == label for cluster, label in zip(test_clusters.tolist(), test_labels)
    ]
    return float(np.mean(right))


def _pair(labels, clusters):
    labels, clusters = np.asarray(labels), np.asarray(clusters)
    if labels.ndim != 1 or labels.shape != clusters.shape or not len(labels):
        raise ValueError(
            "Labels and clusters must be vectors of one length. "
            f"Received: shapes {labels.shape} and {clusters.shape}"
        )
    return labels, clusters


# Most rows that k-means is fitted to, and principal components of the neighbour graph.
FITTED_ROWS, COMPONENTS = 20_000, 64


def kmeans_clusters(train, test, clusters, seed=0):
    """Return k-means clusters of train (N, K) and test (M, K), fitted on some training rows."""
    from sklearn.cluster import KMeans

    fitted = train[_some_rows(train, FITTED_ROWS, clusters, seed)]
    means = KMeans(clusters, n_init=4, random_state=seed).fit(fitted)
    return means.predict(train), means.predict(test)


def graph_clusters(train, test, clusters, neighbours=10, images=10_000, seed=0):
    """Return spectral clusters of train (N, K) and test (M, K) from a neighbour graph."""
    from sklearn.cluster import SpectralClustering
    from sklearn.decomposition import PCA
    from sklearn.neighbors import KNeighborsClassifier

    chosen = _some_rows(train, images, clusters + 1, seed)
    neighbours = min(neighbours, len(chosen) - 1)
    components = PCA(min(COMPONENTS, *train[chosen].shape), random_state=seed).fit(train[chosen])
    train, test = components.transform(train), components.transform(test)
    spectral = SpectralClustering(
        clusters,
        affinity="nearest_neighbors",
        n_neighbors=neighbours,
        assign_labels="cluster_qr",
        eigen_solver="arpack",
        random_state=seed,
    )
    with warnings.catch_warnings():
        # Well separated clusters are disconnected, but the eigenvectors still separate them.
        warnings.filterwarnings("ignore", "Graph is not fully connected", UserWarning)
        # scikit-learn mistakes a square data matrix for an affinity matrix.
        warnings.filterwarnings("ignore", "The spectral clustering API has changed", UserWarning)
        found = spectral.fit_predict(train[chosen])
    # Rows outside the graph get the most frequent cluster of their neighbours in it.
    nearest = KNeighborsClassifier(neighbours).fit(train[chosen], found)
    train_clusters = nearest.predict(train)
    train_clusters[chosen] = found
    return train_clusters, nearest.predict(test)


def _some_rows(rows, most, least, seed):
    """Return the indices of at most `most` random rows, or raise if fewer than `least`."""
    chosen = np.random.default_rng(seed).permutation(len(rows))[:most]
    if len(chosen) < least:
        raise ValueError(f"{least} or more training rows are needed. Received: {len(chosen)}")
    return chosen


def merged_capsules(probabilities, clusters):
    """Return groups (J,) of capsules that are often on for the same images."""
    from sklearn.cluster import AgglomerativeClustering

    winner = winners(probabilities)
    capsules = probabilities.shape[1]
    if capsules == 1:
        return np.zeros(1, int)
    together = np.zeros((capsules, capsules))
    for capsule in range(capsules):
        # Mean probability of each capsule on the images that this one wins.
        if np.any(winner == capsule):
            together[capsule] = probabilities[winner == capsule].mean(axis=0)
    apart = -np.log((together + together.T) / 2 + 1e-6)
    np.fill_diagonal(apart, 0)
    groups = AgglomerativeClustering(
        min(clusters, capsules), metric="precomputed", linkage="average"
    )
    return groups.fit_predict(apart)
