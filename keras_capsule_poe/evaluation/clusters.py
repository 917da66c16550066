"""Clusterings without labels, scored against classes: capsules, k-means and a graph."""

import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.neighbors import KNeighborsClassifier

from keras_capsule_poe.core.routing import winners

FITTED_ROWS, COMPONENTS = 20_000, 64


def clustering_accuracy(labels, clusters):
    """Return the accuracy under the best one-to-one matching (Xie et al., 2016, eq. 10)."""
    # Clusters without a partner count as wrong.
    table = contingency_matrix(*_pair(labels, clusters))
    matched = linear_sum_assignment(table, maximize=True)
    return float(table[matched].sum() / len(labels))


def majority_accuracy(train_clusters, train_labels, test_clusters, test_labels):
    """Return the test accuracy if a cluster predicts its most frequent training class."""
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


def kmeans_clusters(train, test, clusters, seed=0):
    """Return k-means clusters of train (N, K) and test (M, K), fitted on some training rows."""
    fitted = train[_some_rows(train, FITTED_ROWS, clusters, seed)]
    means = KMeans(clusters, n_init=4, random_state=seed).fit(fitted)
    return means.predict(train), means.predict(test)


def graph_clusters(train, test, clusters, neighbours=10, images=10_000, seed=0):
    """Return spectral clusters of train (N, K) and test (M, K) from a neighbour graph."""
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


def merged_capsules(probabilities, clusters):
    """Return groups (J,) of capsules that are often on for the same images."""
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


def clustering_metrics(
    train, train_labels, test, test_labels, train_probabilities, test_probabilities, seed=0
):
    """Return accuracy, majority accuracy and NMI of four clusterings of the test images."""
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
    """Return the indices of at most `most` random rows, or raise if fewer than `least`."""
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
