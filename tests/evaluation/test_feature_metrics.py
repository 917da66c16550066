"""Metrics of feature vectors, against known values and slow, plain forms."""

import itertools
import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.linalg import sqrtm

from keras_capsule_poe.evaluation import feature_metrics
from keras_capsule_poe.evaluation.feature_metrics import (
    clustering_accuracy,
    clustering_metrics,
    distances,
    frechet_distance,
    graph_clusters,
    kernel_distance,
    kmeans_clusters,
    majority_accuracy,
    memorisation,
    nearest_training_distance,
    neighbour_accuracy,
    overlap,
    squared_radii,
)


def vectors(n, k=6, seed=0, shift=0.0, scale=1.0):
    return shift + scale * np.random.default_rng(seed).normal(size=(n, k))


def test_frechet_distance_is_that_of_its_formula():
    x, y = vectors(50), vectors(70, seed=1, shift=0.5, scale=2.0) @ vectors(6, seed=2)
    c_x, c_y = np.cov(x.T), np.cov(y.T)
    expected = np.sum((x.mean(0) - y.mean(0)) ** 2)
    expected += np.trace(c_x + c_y - 2 * sqrtm(c_x @ c_y).real)
    # Both in float64; a square root of a product of covariances keeps about half the digits.
    assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-6)


def test_frechet_distance_of_known_gaussians():
    x = vectors(200)
    x = (x - x.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T))).T  # exactly standard
    assert frechet_distance(x, x) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(x, x + 3) == pytest.approx(6 * 9)
    # tr(1 + s^2 - 2 s) a dimension.
    assert frechet_distance(x, 3 * x) == pytest.approx(6 * (3 - 1) ** 2)


def test_frechet_distance_of_fewer_vectors_than_dimensions():
    x, y = vectors(5, k=20), vectors(4, k=20, seed=1)
    found = frechet_distance(x, y)
    assert found == pytest.approx(frechet_distance(y, x)) and np.isfinite(found) and found > 0


def test_kernel_distance_is_the_unbiased_estimate():
    x, y = vectors(12), vectors(12, seed=1, shift=0.3)

    def kernel(a, b):
        return (a @ b / 6 + 1) ** 3

    pairs = [(i, j) for i in range(12) for j in range(12) if i != j]
    expected = np.mean([kernel(x[i], x[j]) + kernel(y[i], y[j]) for i, j in pairs])
    expected -= 2 * np.mean([kernel(a, b) for a in x for b in y])
    mean, _ = kernel_distance(x, y)  # subsets of all vectors are all the same
    assert mean == pytest.approx(expected)


@pytest.mark.parametrize("n, size", [(60, 1000), (400, 50)])
def test_the_error_of_the_kernel_distance_is_the_spread_of_other_draws(n, size):
    """Rejects the spread of subsets that overlap, or are all the same, over their number."""
    found = [
        kernel_distance(vectors(n, seed=2 * s), vectors(n, seed=2 * s + 1, shift=0.5), size=size)
        for s in range(100)
    ]
    means, errors = np.transpose(found)
    # A deviation of 100 draws is known to 7%, and the jackknife's to 20 subsets.
    assert np.median(errors) == pytest.approx(means.std(ddof=1), rel=0.3)


def test_the_kernel_distance_needs_four_vectors():
    with pytest.raises(ValueError, match="four vectors or more. Received: 3"):
        kernel_distance(vectors(3), vectors(9))


def test_kernel_distance_is_about_zero_for_the_same_distribution_and_grows():
    mean, error = kernel_distance(vectors(3000), vectors(3000, seed=1), size=300)
    # The subsets overlap little: four standard errors.
    assert abs(mean) < 4 * error
    assert (
        kernel_distance(vectors(3000), vectors(3000, seed=1, shift=0.5), size=300)[0] > 10 * error
    )


def test_sets_that_cannot_be_compared_are_refused():
    for shapes in (((5, 3), (5, 2)), ((1, 3), (5, 3)), ((5,), (5,))):
        for metric in (frechet_distance, overlap):
            with pytest.raises(ValueError, match="Received: shapes"):
                metric(*(np.zeros(shape) for shape in shapes))
    for name in ("subsets", "size"):
        with pytest.raises(ValueError, match=f"`{name}` must be an integer of at least 2"):
            kernel_distance(vectors(20), vectors(20), **{name: 1})
    for shapes in (((2, 4, 4, 1), (3, 4, 4, 3)), ((2, 4, 4, 1), (0, 4, 4, 1))):
        with pytest.raises(ValueError, match="Received: shapes"):
            nearest_training_distance(*(np.zeros(shape) for shape in shapes))


def test_distances_of_one_set_are_none_and_of_a_single_vector_unknown():
    found = distances(vectors(200), vectors(200))
    assert found["FID"] == pytest.approx(0, abs=1e-9) and found["coverage"] == 1
    assert set(distances(vectors(1), vectors(1)).values()) == {None}


def overlap_by_definition(real, fake, k):
    def apart(x, y):
        return np.linalg.norm(x[:, None] - y[None], axis=-1)

    # The first of the sorted distances is a vector's own, to itself.
    of_real, of_fake = (np.sort(apart(x, x), axis=1)[:, k] for x in (real, fake))
    in_real = apart(real, fake) <= of_real[:, None]
    in_fake = apart(real, fake) <= of_fake[None]
    return {
        "precision": in_real.any(axis=0).mean(),
        "recall": in_fake.any(axis=1).mean(),
        "density": in_real.sum() / (k * len(fake)),
        "coverage": in_real.any(axis=1).mean(),
    }


def test_overlap_is_that_of_its_definition(monkeypatch):
    """Rejects the two sets exchanged, a vector as its own first neighbour, and lost blocks."""
    for rows, k, sizes in itertools.product((7, 1000), (1, 5), ((40, 30), (30, 41))):
        monkeypatch.setattr(feature_metrics, "OVERLAP_ROWS", rows)
        real, fake = vectors(sizes[0]), vectors(sizes[1], seed=1, shift=0.4)
        expected = overlap_by_definition(real, fake, k)
        # Counts over whole numbers: equal but for the division.
        assert overlap(real, fake, k) == pytest.approx(expected, rel=1e-12)


def test_radii_that_are_known_are_taken():
    real, fake = vectors(40), vectors(30, seed=1, shift=0.4)
    known = squared_radii(real, 3)
    assert overlap(real, fake, 3, known) == overlap(real, fake, 3)
    # Balls of twice the radius hold more.
    assert overlap(real, fake, 3, 4 * known)["density"] > overlap(real, fake, 3)["density"]


def test_precision_and_recall_are_each_other_with_the_sets_exchanged():
    real, fake = vectors(60), vectors(45, seed=1, shift=0.5)
    one, other = overlap(real, fake), overlap(fake, real)
    assert (one["precision"], one["recall"]) == (other["recall"], other["precision"])
    assert one["precision"] != one["recall"]


def test_collapse_loses_recall_and_noise_precision():
    real = vectors(1500)
    same = overlap(real, vectors(1500, seed=1))
    # Naeem et al.: for equal distributions density is 1 in the mean and coverage 1 - 1/2^k.
    assert same["density"] == pytest.approx(1, abs=0.1)
    assert same["coverage"] == pytest.approx(1 - 0.5**5, abs=0.03)
    assert min(same["precision"], same["recall"]) > 0.9
    collapsed = overlap(real, real[:1] + 1e-3 * vectors(1500, seed=2))
    assert collapsed["precision"] == 1 and collapsed["recall"] < 0.01
    assert collapsed["coverage"] < 0.02
    wide = overlap(real, 5 * vectors(1500, seed=3))
    assert wide["precision"] < 0.1 and wide["recall"] > 0.9
    assert set(overlap(real, vectors(1500, seed=1, shift=50)).values()) == {0}


def test_memory_is_that_of_a_block():
    """Rejected: a column of each block that keeps the block, 32 MB of all distances."""
    real, fake = vectors(2000), vectors(2000, seed=1)
    tracemalloc.start()
    try:
        overlap(real, fake)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A block of 128 rows is 2 MB, of which there are a few at once.
    assert most < 10e6


SHAPE = (6, 5, 2)


def images(n, seed=0):
    return np.random.default_rng(seed).integers(256, size=(n, *SHAPE)).astype("uint8")


def brute_force(x, y):
    """All distances in float64, (M, N)."""
    difference = x[:, None].astype("float64") - y[None].astype("float64") / 255
    return np.sqrt(np.square(difference).sum(axis=(2, 3, 4)))


def test_the_nearest_training_image_is_found(monkeypatch):
    train, pixels = images(40), np.random.default_rng(1).random((30, *SHAPE))
    every = brute_force(pixels, train)
    for rows in (2000, 7):
        monkeypatch.setattr(feature_metrics, "ROWS", rows)
        distance, index = nearest_training_distance(pixels, train)
        np.testing.assert_array_equal(index, every.argmin(axis=1))
        # Sixty squares in float32.
        np.testing.assert_allclose(distance, every.min(axis=1), rtol=1e-5)


def test_a_copy_is_at_distance_zero():
    train = images(50)
    chosen = np.array([3, 49, 0, 3])
    for copies in (train[chosen], train[chosen].astype("float32") / 255):
        distance, index = nearest_training_distance(copies, train)
        np.testing.assert_array_equal(index, chosen)
        # Exactly: not the square root of the rounding of two equal sums.
        np.testing.assert_array_equal(distance, 0)


def test_a_known_distance():
    black, one_pixel = np.zeros((1, *SHAPE), "uint8"), np.zeros((1, *SHAPE))
    one_pixel[0, 2, 3, 1] = 0.25
    assert nearest_training_distance(one_pixel, black)[0] == pytest.approx(0.25)


def test_copies_are_told_from_new_images():
    train, held_out, samples = images(300), images(300, seed=1), images(200, seed=2)
    samples[:50] = train[:50]
    found = memorisation(samples, nearest_training_distance(held_out, train)[0], train)
    every = [np.sort(brute_force(x / 255, train).min(axis=1)) for x in (samples, held_out)]
    medians = [np.median(x) for x in every]
    assert found["sample_distance"] == pytest.approx(medians[0], rel=1e-5)
    assert found["held_out_distance"] == pytest.approx(medians[1], rel=1e-5)
    assert found["relative_distance"] == pytest.approx(medians[0] / medians[1], rel=1e-5)
    # A quarter are copies; of the other 150 the 1% quantile takes in 1.5, six at most.
    assert 0.25 <= found["copies"] <= 0.28


def test_real_images_and_copies_are_the_two_ends():
    train = images(300)
    usual, _ = nearest_training_distance(images(300, seed=2), train)
    real = memorisation(images(300, seed=1), usual, train)
    # Of 300, three lie below a 1% quantile, give or take their spread and the quantile's own.
    assert real["copies"] < 0.04 and real["relative_distance"] == pytest.approx(1, abs=0.05)
    copied = memorisation(train, usual, train)
    assert (copied["copies"], copied["relative_distance"]) == (1, 0)
    assert memorisation(train, np.zeros(300), train)["relative_distance"] is None


def test_neighbour_accuracy_standardises():
    random = np.random.default_rng(0)
    labels = random.integers(2, size=400)
    # The first column tells the classes apart, the second is louder.
    x = np.stack([labels + 0.1 * random.normal(size=400), 1e4 * random.normal(size=400)], axis=1)
    assert neighbour_accuracy(x[:300], labels[:300], x[300:], labels[300:]) == 1


def test_neighbour_accuracy_is_the_vote_of_the_nearest(monkeypatch):
    monkeypatch.setattr(feature_metrics, "ROWS", 7)
    random = np.random.default_rng(0)
    x, y, labels, truth = (
        *(random.normal(size=(n, 3)) for n in (60, 50)),
        *(random.integers(2, size=n) for n in (60, 50)),
    )
    order = np.linalg.norm((y[:, None] - x) / x.std(0), axis=-1).argsort(axis=1)[:, :3]
    expected = np.mean((labels[order].mean(axis=1) > 0.5) == truth)
    assert neighbour_accuracy(x, labels, y, truth, neighbours=3) == pytest.approx(expected)


def test_of_few_rows_all_are_neighbours():
    x, y = np.array([[0.0], [1.0], [1.1]]), np.array([0, 1, 1])
    assert neighbour_accuracy(x, y, x, y) == pytest.approx(2 / 3)


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


def test_the_best_matching_is_found():
    for classes, clusters in ((4, 4), (3, 5), (5, 3)):
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


def test_separate_classes_are_found():
    (train, of_train), (test, of_test) = blobs(300, 0), blobs(100, 1)
    for method in (kmeans_clusters, graph_clusters):
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


def test_clusters_follow_the_seed():
    train, _ = blobs(200, 0, spread=5)
    for method in (kmeans_clusters, graph_clusters):
        found = [method(train, train[:50], 7, seed=4) for _ in range(2)]
        for one, other in zip(*found):
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
