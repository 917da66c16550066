"""Clusters and their scores, against matchings tried one by one and shapes that are known."""

import itertools
import warnings

import numpy as np
import pytest

from keras_capsule_poe.evaluation.clusters import (
    clustering_accuracy,
    clustering_metrics,
    graph_clusters,
    kmeans_clusters,
    majority_accuracy,
)


def blobs(n, seed, spread=0.3):
    """Three Gaussians in six dimensions far from each other, and which one each row is of."""
    random = np.random.default_rng(seed)
    which = random.integers(3, size=n)
    return 5 * np.eye(6)[which] + spread * random.normal(size=(n, 6)), which


def arcs(n, seed):
    """Two interleaved half circles, which no two means tell apart."""
    random = np.random.default_rng(seed)
    which, angle = random.integers(2, size=n), np.pi * random.uniform(size=n)
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x = np.where(which[:, None], [1, 0.5] - x, x)
    return x + 0.05 * random.normal(size=(n, 2)), which


@pytest.mark.parametrize("classes, clusters", [(4, 4), (3, 5), (5, 3)])
def test_the_best_matching_is_found(classes, clusters):
    random = np.random.default_rng(classes)
    labels, found = random.integers(classes, size=60), random.integers(clusters, size=60)
    # A name beyond the classes is nobody's, so that a surplus cluster matches nothing.
    names = itertools.permutations(range(max(classes, clusters)), clusters)
    expected = max(np.mean(np.array(name)[found] == labels) for name in names)
    assert clustering_accuracy(labels, found) == pytest.approx(expected)


def test_names_of_clusters_do_not_matter_and_surplus_ones_are_wrong():
    labels = np.repeat([0, 1, 2], 4)
    assert clustering_accuracy(labels, np.array([7, -1, 30])[labels]) == 1
    # Class 0 in two halves, of which only one can be its own.
    assert clustering_accuracy(labels, [0, 0, 9, 9, 1, 1, 1, 1, 2, 2, 2, 2]) == pytest.approx(
        10 / 12
    )


def test_clusters_are_named_in_training():
    train_clusters, train_labels = [5, 5, 5, 8, 8, 2], [1, 1, 0, 0, 0, 1]
    # 5 is class 1, 8 is class 0, 2 is class 1; training has no cluster 3.
    found = majority_accuracy(train_clusters, train_labels, [5, 5, 8, 2, 3], [1, 0, 0, 1, 0])
    assert found == pytest.approx(3 / 5)


@pytest.mark.parametrize("method", [kmeans_clusters, graph_clusters])
def test_separate_classes_are_found(method):
    (train, of_train), (test, of_test) = blobs(300, 0), blobs(100, 1)
    train_clusters, test_clusters = method(train, test, 3)
    assert (train_clusters.shape, test_clusters.shape) == ((300,), (100,))
    assert clustering_accuracy(of_train, train_clusters) == 1
    assert clustering_accuracy(of_test, test_clusters) == 1


def test_a_graph_follows_shapes_that_means_cut():
    (train, of_train), (test, of_test) = arcs(600, 0), arcs(200, 1)
    train_clusters, test_clusters = graph_clusters(train, test, 2)
    assert clustering_accuracy(of_train, train_clusters) > 0.99
    assert clustering_accuracy(of_test, test_clusters) > 0.99
    assert clustering_accuracy(of_test, kmeans_clusters(train, test, 2)[1]) < 0.95


def test_rows_outside_the_graph_follow_their_neighbours():
    train, of_train = blobs(900, 0)
    train_clusters, _ = graph_clusters(train, train[:1], 3, images=200)
    assert clustering_accuracy(of_train, train_clusters) == 1


def test_as_many_rows_as_columns_are_no_affinity_matrix():
    x = np.random.default_rng(0).normal(size=(12, 12))
    train, test = graph_clusters(x, x[:3], clusters=2)  # any warning is an error here
    assert len(train) == 12 and len(test) == 3


def test_only_the_warning_of_a_disconnected_graph_is_caught(monkeypatch):
    def warns(self, x):
        warnings.warn("something else", UserWarning, stacklevel=1)
        return np.arange(len(x)) % 3

    monkeypatch.setattr("sklearn.cluster.SpectralClustering.fit_predict", warns)
    with pytest.warns(UserWarning, match="something else"):
        graph_clusters(*(blobs(50, seed)[0] for seed in (0, 1)), 3)


@pytest.mark.parametrize("method", [kmeans_clusters, graph_clusters])
def test_clusters_follow_the_seed(method):
    train, _ = blobs(200, 0, spread=5)
    for one, other in zip(
        method(train, train[:50], 7, seed=4), method(train, train[:50], 7, seed=4)
    ):
        np.testing.assert_array_equal(one, other)


def test_figures_of_four_clusterings():
    (train, of_train), (test, of_test) = blobs(300, 0), blobs(100, 1)
    winners = (2 * of_train + np.arange(300) % 2, 2 * of_test + np.arange(100) % 2)
    # Two capsules of a class are on together, the winner more so.
    probabilities = [0.9 * np.eye(6)[w] + 0.4 * np.eye(6)[w ^ 1] for w in winners]
    figures = clustering_metrics(train, of_train, test, of_test, *probabilities)
    perfect = {"accuracy": 1, "majority_accuracy": 1, "nmi": pytest.approx(1), "clusters": 3}
    assert figures["kmeans"] == figures["graph"] == figures["merged_capsules"] == perfect
    halves = figures["winning_capsule"]
    # Every class has two capsules: named rightly, but matched one-to-one only the larger half is.
    assert (halves["clusters"], halves["majority_accuracy"]) == (6, 1)
    larger = sum(
        max(np.sum(winners[1] == 2 * k), np.sum(winners[1] == 2 * k + 1)) for k in range(3)
    )
    assert halves["accuracy"] == pytest.approx(larger / 100)
    assert halves["nmi"] < 1


def test_what_cannot_be_clustered_is_refused():
    with pytest.raises(ValueError, match="Received: shapes"):
        clustering_accuracy([0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="Received: 5"):
        kmeans_clusters(np.zeros((5, 2)), np.zeros((5, 2)), 6)
    with pytest.raises(ValueError, match="6 or more training rows"):
        graph_clusters(np.zeros((5, 2)), np.zeros((5, 2)), 5)


def test_a_graph_of_few_rows_has_few_neighbours():
    x = np.random.default_rng(0).normal(size=(50, 3))
    of_train, of_test = graph_clusters(x, x[:7], 2, neighbours=10, images=8)
    assert of_train.shape == (50,) and of_test.shape == (7,)
