"""Initial maps: images and principal directions of clusters of the training images."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from keras_capsule_poe.models.base import clusters as starts
from keras_capsule_poe.models.base.clusters import (
    cluster_rows,
    clustered,
    principal_directions,
    starting_images,
)


@pytest.mark.parametrize("start", ["clusters", "random"])
def test_starting_images_are_training_images_of_one_cluster(start):
    random = np.random.default_rng(0)
    which = random.integers(3, size=90)
    x = 5 * np.eye(4)[which][:, None, :] + 0.1 * random.normal(size=(90, 1, 4))
    rows = starting_images(lambda chosen: x[chosen], 90, experts=3, dim=5, start=start, seed=1)
    assert rows.shape == (15,) and 0 <= rows.min() and rows.max() < 90
    groups = which[rows].reshape(3, 5)
    alike = (groups == groups[:, :1]).all()
    assert alike == (start == "clusters")
    if alike:
        assert sorted(groups[:, 0]) == [0, 1, 2]
    again = starting_images(lambda chosen: x[chosen], 90, experts=3, dim=5, start=start, seed=1)
    np.testing.assert_array_equal(rows, again)


def test_of_several_clusterings_the_closest_is_taken(monkeypatch):
    """Rejects one k-means, which for some seeds leaves two groups in one, and too few axes."""
    random = np.random.default_rng(0)
    x = np.zeros((12, 20, 200))
    x[..., :2] = random.uniform(0, 10, size=(12, 1, 2))
    x = (x + 0.05 * random.normal(size=x.shape)).reshape(-1, 50, 4)
    seeds, flat = range(4), x.reshape(len(x), -1)
    single = [KMeans(12, n_init=1, random_state=seed).fit(flat).labels_ for seed in seeds]
    assert not all(map(_tells_apart, single))
    for seed in seeds:
        _, _, distances = clustered(lambda chosen: x[chosen], len(x), experts=12, seed=seed)
        assert _tells_apart(distances.argmin(axis=1))
    monkeypatch.setattr(starts, "PRINCIPAL_AXES", 1)
    _, _, distances = clustered(lambda chosen: x[chosen], len(x), experts=12, seed=0)
    assert not _tells_apart(distances.argmin(axis=1))


def _tells_apart(labels):
    found = labels.reshape(12, 20)
    return (found == found[:, :1]).all() and len(set(found[:, 0])) == 12


def test_a_small_cluster_takes_in_its_neighbours_and_repeats_none():
    x = np.r_[np.zeros(30), 500.0, 502.0, 100 + 0.01 * np.arange(30)].reshape(-1, 1, 1)
    rows = starting_images(lambda chosen: x[chosen], 62, experts=3, dim=4, start="clusters", seed=0)
    groups = rows.reshape(3, 4)
    assert all(len(set(group)) == 4 for group in groups)
    small = next(group for group in groups if {30, 31} <= set(group))
    assert set(small) - {30, 31} <= set(range(32, 62))  # nearer than those at 0


@pytest.mark.parametrize("images", [1, 3, 5])
def test_a_few_images_start_too(images):
    x = np.random.default_rng(0).normal(size=(images, 2, 2))
    rows = starting_images(lambda chosen: x[chosen], images, 4, 3, "clusters", seed=0)
    assert rows.shape == (12,) and set(rows) <= set(range(images))


def groups_of(n, seed=0):
    """Images (N, 4, 3) of three groups far apart, each of two dimensions; and their groups."""
    random = np.random.default_rng(seed)
    which = random.integers(3, size=n)
    centers = 40 * np.linalg.qr(random.normal(size=(12, 3)))[0].T
    axes = random.normal(size=(3, 2, 12))
    x = centers[which] + np.einsum("nk,nkd->nd", random.normal(size=(n, 2)), axes[which])
    return x.astype("float32").reshape(n, 4, 3), which


@pytest.mark.parametrize("images_of_k_means", [100_000, 150])
def test_principal_directions_are_the_singular_vectors_of_each_cluster(
    monkeypatch, images_of_k_means
):
    """Also with more images than k-means sees, which join the nearest cluster."""
    monkeypatch.setattr(starts, "CLUSTERED", images_of_k_means)
    x, which = groups_of(600)
    found = principal_directions(lambda rows: x[rows], 600, experts=3, dim=4, seed=0)
    assert found.shape == (12, 4, 3)
    np.testing.assert_allclose(np.linalg.norm(found.reshape(12, -1), axis=1), 1, rtol=1e-5)
    rows = cluster_rows(lambda rows: x[rows], 600, experts=3, dim=4, seed=0)
    assert [len(set(which[own])) for own in rows] == [1, 1, 1]
    # About 80 each: no more than 240 images are read beyond those of k-means.
    assert all(60 <= len(own) <= 4 * starts.PER_DIRECTION for own in rows)
    for own, directions in zip(rows, found.reshape(3, 4, 12)):
        images = x[own].reshape(len(own), 12).astype("float64")
        exact = np.linalg.svd(images)[2][:3]  # one center and two axes
        np.testing.assert_allclose(np.abs(np.sum(exact * directions[:3], axis=1)), 1, atol=1e-4)


def test_a_small_cluster_borrows_images_for_its_directions():
    x = np.r_[np.zeros((30, 2)), [[500.0, 0], [502, 1]], 100 + 0.01 * np.ones((30, 2))]
    x = (x + 0.1 * np.random.default_rng(0).normal(size=x.shape)).reshape(-1, 1, 2)
    rows = cluster_rows(lambda rows: x[rows], 62, experts=3, dim=4, seed=0)
    small = next(set(own) for own in rows if {30, 31} <= set(own))
    assert len(small) == 8 and small - {30, 31} <= set(range(32, 62))


@pytest.mark.parametrize("images", [4, 5, 9])
def test_fewer_images_than_directions_leave_some_random(images):
    x = np.random.default_rng(0).normal(size=(images, 4, 3))
    found = principal_directions(lambda rows: x[rows], images, experts=2, dim=10, seed=0)
    found = found.reshape(2, 10, 12)
    assert np.isfinite(found).all()
    assert [np.linalg.matrix_rank(each, tol=1e-3) for each in found] == [10, 10]
