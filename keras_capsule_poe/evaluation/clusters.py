"""How far clusters found without labels are the classes: winning capsules, k-means, a graph."""

import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.neighbors import KNeighborsClassifier

from keras_capsule_poe.functions.winners import winners

FITTED_ROWS, COMPONENTS = 20_000, 64


def clustering_accuracy(labels, clusters):
    """Accuracy of clusters as classes, under the best one-to-one matching of the two.

    Clusters beyond the number of classes match nothing, and count as wrong.

    Args:
        labels: Integer array (N,).
        clusters: Integer array (N,).

    Returns:
        float in [0, 1].

    Raises:
        ValueError: If the arrays are empty, or not of one length.

    Examples:

    >>> clustering_accuracy([0, 0, 1, 1], [5, 5, 3, 5])
    0.75

    Reference:

    - [Xie et al., 2016](https://arxiv.org/abs/1511.06335), eq. 10
    """
    table = contingency_matrix(*_pair(labels, clusters))
    matched = linear_sum_assignment(table, maximize=True)
    return float(table[matched].sum() / len(labels))


def majority_accuracy(train_clusters, train_labels, test_clusters, test_labels):
    """Accuracy on test, each cluster named by its most frequent class in training.

    Test members of a cluster that training does not have count as wrong.

    Args:
        train_clusters: Integer array (N,).
        train_labels: Integer array (N,).
        test_clusters: Integer array (M,).
        test_labels: Integer array (M,).

    Returns:
        float in [0, 1].

    Raises:
        ValueError: If the arrays of a set are empty, or not of one length.

    Examples:

    >>> majority_accuracy([7, 7, 8], [1, 1, 0], [7, 8, 9], [1, 0, 0])
    0.6666666666666666
    """
    train_labels, train_clusters = _pair(train_labels, train_clusters)
    test_labels, test_clusters = _pair(test_labels, test_clusters)
    table = contingency_matrix(train_labels, train_clusters)
    majority = np.unique(train_labels)[table.argmax(axis=0)]
    name = dict(zip(np.unique(train_clusters).tolist(), majority.tolist()))
    right = [
        name.get(cluster) == label for cluster, label in zip(test_clusters.tolist(), test_labels)
    ]
    return float(np.mean(right))


def kmeans_clusters(train, test, clusters, seed=0):
    """K-means, fitted on 20,000 training rows at most.

    Args:
        train: Array (N, K).
        test: Array (M, K).
        clusters: int.
        seed: int.

    Returns:
        Integer arrays (N,) and (M,), which cluster each row is in.

    Raises:
        ValueError: If there are fewer rows than clusters.

    Examples:

    >>> rows = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> of_train, _ = kmeans_clusters(rows, rows, clusters=2)
    >>> bool(of_train[0] == of_train[1] != of_train[2] == of_train[3])
    True
    """
    fitted = train[_some_rows(train, FITTED_ROWS, clusters, seed)]
    means = KMeans(clusters, n_init=4, random_state=seed).fit(fitted)
    return means.predict(train), means.predict(test)


def graph_clusters(train, test, clusters, neighbours=10, images=10_000, seed=0):
    """Spectral clustering of the graph of nearest neighbours of a part of the training rows.

    Distances are those of the first 64 principal components. All other rows get the most
    frequent cluster of their nearest neighbours in the graph.

    Args:
        train: Array (N, K).
        test: Array (M, K).
        clusters: int.
        neighbours: int, of a row in the graph, itself among them.
        images: int, training rows in the graph, at most.
        seed: int.

    Returns:
        Integer arrays (N,) and (M,), which cluster each row is in.

    Raises:
        ValueError: If there are no more rows in the graph than clusters.

    Examples:

    >>> random = np.random.default_rng(0)
    >>> x = np.concatenate([random.normal(size=(20, 2)), random.normal(size=(20, 2)) + 50])
    >>> of_train, _ = graph_clusters(x, x, clusters=2)
    >>> len(set(of_train[:20])), len(set(of_train))
    (1, 2)

    Reference:

    - [Damle et al., 2019](https://arxiv.org/abs/1708.07481), clusters from eigenvectors
    """
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
        # Well separated clusters are disconnected: the eigenvectors still tell them apart.
        warnings.filterwarnings("ignore", "Graph is not fully connected", UserWarning)
        # It takes as many rows as columns for an affinity matrix.
        warnings.filterwarnings("ignore", "The spectral clustering API has changed", UserWarning)
        found = spectral.fit_predict(train[chosen])
    nearest = KNeighborsClassifier(neighbours).fit(train[chosen], found)
    train_clusters = nearest.predict(train)
    train_clusters[chosen] = found
    return train_clusters, nearest.predict(test)


def merged_capsules(probabilities, clusters):
    """Capsules put together by how often they are on for the same images.

    Average linkage of -log of the mean probability that one is on where another wins.

    Args:
        probabilities: Array (N, J), of training images.
        clusters: int, how many groups, at most J.

    Returns:
        Integer array (J,), the group of each capsule.

    Examples:

    >>> p = np.array([[0.9, 0.8, 0.1], [0.8, 0.9, 0.1], [0.1, 0.1, 0.9]])
    >>> group = merged_capsules(p, clusters=2)
    >>> bool(group[0] == group[1] != group[2])
    True
    """
    winner = winners(probabilities)
    capsules = probabilities.shape[1]
    if capsules == 1:
        return np.zeros(1, int)
    together = np.zeros((capsules, capsules))
    for capsule in range(capsules):
        if np.any(winner == capsule):
            together[capsule] = probabilities[winner == capsule].mean(axis=0)
    apart = -np.log((together + together.T) / 2 + 1e-6)
    np.fill_diagonal(apart, 0)
    groups = AgglomerativeClustering(
        min(clusters, capsules), metric="precomputed", linkage="average"
    )
    return groups.fit_predict(apart)


def clustering_figures(
    train, train_labels, test, test_labels, train_probabilities, test_probabilities, seed=0
):
    """Figures of four ways to cluster images, all but the first with as many groups as classes.

    Args:
        train: Array (N, K), codes.
        train_labels: Integer array (N,).
        test: Array (M, K).
        test_labels: Integer array (M,).
        train_probabilities: Array (N, J), of the capsules.
        test_probabilities: Array (M, J).
        seed: int.

    Returns:
        dict: for `winning_capsule`, `merged_capsules` (the group of the winner), `kmeans` and
        `graph` of the codes a dict of `accuracy` (see `clustering_accuracy`),
        `majority_accuracy` and `nmi`, the normalised mutual information with the labels, all
        three of test; `clusters`, how many training has.

    Examples:

    >>> p, y = np.eye(2)[np.arange(30) % 2], np.arange(30) % 2
    >>> x = p + 0.1 * np.random.default_rng(0).normal(size=(30, 2))
    >>> clustering_figures(x, y, x, y, p, p)["winning_capsule"]["accuracy"]
    1.0
    """
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


def _some_rows(rows, most, least, seed):
    """Indices of at most `most` rows, at random."""
    chosen = np.random.default_rng(seed).permutation(len(rows))[:most]
    if len(chosen) < least:
        raise ValueError(f"{least} or more training rows are needed. Received: {len(chosen)}")
    return chosen


def _pair(labels, clusters):
    labels, clusters = np.asarray(labels), np.asarray(clusters)
    if labels.ndim != 1 or labels.shape != clusters.shape or not len(labels):
        raise ValueError(
            "Labels and clusters must be vectors of one length. "
            f"Received: shapes {labels.shape} and {clusters.shape}"
        )
    return labels, clusters
