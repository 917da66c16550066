"""Soft k-means: its loss, its step, its hard limit; and routing with replaced logits, one step.

Against NumPy in float64, autodiff and scikit-learn's KMeans. Rejected: shares by a softmax over the
inputs; a sharpness that the shares do not see; sums where distances ask for means; shares by
products with z or with its squash, or by cosine, where the distance has the centre's direction.
"""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp, softmax
from sklearn.cluster import KMeans
from theory.soft_k_means import soft_k_means_loss, soft_k_means_step

from keras_capsule_poe.functions import squash

I, J, E, K = 40, 3, 4, 2.0
DISTANCES = pytest.mark.parametrize("distance", ["euclidean", "projection"])
# Float64 sums of 40 terms of order one, in another order.
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


def problem(seed=0, own=True):
    """Votes of inputs for clusters, and centres; without `own`, points in groups."""
    random = np.random.default_rng(seed)
    if own:
        return random.normal(size=(I, J, E)), random.normal(size=(J, E))
    means = 3 * random.normal(size=(J, E))
    points = means[random.integers(J, size=I)] + random.normal(size=(I, E))
    return points[:, None], points[:J] + 0.01


def unit(v):
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


def distances(votes, centres, distance):
    if distance == "euclidean":
        return ((votes - centres) ** 2).sum(axis=-1)
    return -(votes * unit(centres)).sum(axis=-1)


def numpy_step(votes, centres, sharpness, distance):
    c = softmax(-sharpness * distances(votes, centres, distance), axis=-1)
    sums = (c[..., None] * votes).sum(axis=0)
    return c, sums / c.sum(axis=0)[:, None] if distance == "euclidean" else sums


def slope(votes, centres, sharpness, distance):
    centres = tf.constant(centres)
    with tf.GradientTape() as tape:
        tape.watch(centres)
        loss = soft_k_means_loss(tf.constant(votes), centres, sharpness, distance)
    return tape.gradient(loss, centres).numpy()


@DISTANCES
@pytest.mark.parametrize("own", [True, False])
def test_the_loss_and_the_step_are_as_written(distance, own):
    votes, centres = problem(own=own)
    expected = -logsumexp(-K * distances(votes, centres, distance), axis=-1).sum() / K
    np.testing.assert_allclose(soft_k_means_loss(votes, centres, K, distance), expected, **CLOSE)
    for found, right in zip(
        soft_k_means_step(votes, centres, K, distance), numpy_step(votes, centres, K, distance)
    ):
        np.testing.assert_allclose(found, right, **CLOSE)
    # Leading axes are problems of their own.
    many = [np.stack([array, 2 * array]) for array in (votes, centres)]
    losses = soft_k_means_loss(*many, K, distance)
    np.testing.assert_allclose(losses[0], expected, **CLOSE)
    assert losses.shape == (2,)


@DISTANCES
def test_the_step_follows_the_gradient(distance):
    """Euclidean: a gradient step of 1/(2 sum_i c_ij); projection: the sum's part across v_j."""
    votes, v = problem(seed=1)
    c, z = (np.asarray(array) for array in soft_k_means_step(votes, v, K, distance))
    gradient = slope(votes, v, K, distance)
    if distance == "euclidean":
        np.testing.assert_allclose(v - gradient / (2 * c.sum(axis=0)[:, None]), z, **CLOSE)
    else:
        across = z - (z * unit(v)).sum(axis=-1, keepdims=True) * unit(v)
        np.testing.assert_allclose(
            gradient, -across / np.linalg.norm(v, axis=-1, keepdims=True), **CLOSE
        )


@pytest.mark.some(5)
@DISTANCES
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("sharpness", [0.3, 2.0, 20.0])
def test_no_step_raises_the_loss(distance, own, sharpness):
    for seed in range(3):
        votes, centres = problem(seed, own)
        losses = []
        for _ in range(12):
            losses.append(float(soft_k_means_loss(votes, centres, sharpness, distance)))
            centres = soft_k_means_step(votes, centres, sharpness, distance).z
        # Rounding of sums of a few hundred.
        assert np.diff(losses).max() < 1e-11 and losses[0] - losses[-1] > 0.1


def over_inputs(votes, v, distance):
    c = softmax(-K * distances(votes, v, distance), axis=0)
    return (c[..., None] * votes).sum(axis=0)


def other_sharpness(votes, v, distance):
    return numpy_step(votes, v, 1.0, distance)[1]


def sums(votes, v, distance):
    c = softmax(-K * distances(votes, v, distance), axis=-1)
    return (c[..., None] * votes).sum(axis=0)


def toward(kind):
    """Sums by agreement with z, its squash, or by cosine."""

    def step(votes, v, distance):
        v = {"z": v, "dot": np.asarray(squash(v)), "cosine": unit(v)}[kind]
        u = unit(votes) if kind == "cosine" else votes
        return (softmax(K * (u * v).sum(axis=-1), axis=-1)[..., None] * votes).sum(axis=0)

    return step


def rest(votes, centres, distance):
    """Where `soft_k_means_step` moves nothing."""
    for _ in range(500):
        centres, before = np.asarray(soft_k_means_step(votes, centres, K, distance).z), centres
        if np.abs(unit(centres) - unit(before)).max() < 1e-14:
            return centres
    raise AssertionError("has not settled")


@pytest.mark.some(2)
@DISTANCES
def test_where_the_step_rests_the_gradient_vanishes(distance):
    for seed in range(3):
        votes, start = problem(seed)
        # The last move was 1e-14 and the slope is at most 100 times as much.
        assert np.abs(slope(votes, rest(votes, start, distance), K, distance)).max() < 1e-11
        assert np.abs(slope(votes, start, K, distance)).max() > 0.1


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "wrong, distance",
    [
        (over_inputs, "euclidean"),
        (over_inputs, "projection"),
        (other_sharpness, "euclidean"),
        (other_sharpness, "projection"),
        (sums, "euclidean"),
        (toward("z"), "projection"),
        (toward("dot"), "projection"),
        (toward("cosine"), "projection"),
    ],
)
def test_wrong_steps_leave_the_rest(wrong, distance):
    votes, start = problem(0)
    v = rest(votes, start, distance)
    moved = wrong(votes, v, distance)
    # Of projections the direction alone says anything.
    moved = unit(moved) - unit(v) if distance == "projection" else moved - v
    # Long centres, whose squash is nearly their direction, move least: 2e-4, and ours 1e-14.
    assert np.abs(moved).max() > 1e-4


@DISTANCES
def test_a_large_sharpness_is_hard_k_means(distance):
    """A step is one of Lloyd's, and the whole is scikit-learn's KMeans."""
    sharp = 1e8
    points, v = problem(seed=3, own=False)
    if distance == "projection":
        points, v = unit(points), unit(v)  # nearest is then the one of largest cosine
    flat = points[:, 0]
    for _ in range(20):
        nearest = np.sort(distances(points, v, distance), axis=-1)
        # No input lies between two clusters: exp(-1e8 * 1e-5) is zero.
        assert np.min(nearest[:, 1] - nearest[:, 0]) > 1e-5
        lloyd = KMeans(J, init=v, n_init=1, max_iter=1, algorithm="lloyd", tol=0).fit(flat)
        c, z = (np.asarray(array) for array in soft_k_means_step(points, v, sharp, distance))
        assert np.array_equal(np.sort(c, axis=-1)[:, :-1], np.zeros((I, J - 1)))
        if distance == "euclidean":
            np.testing.assert_allclose(z, lloyd.cluster_centers_, rtol=1e-9)
            v = z
        else:
            np.testing.assert_allclose(unit(z), unit(lloyd.cluster_centers_), rtol=1e-9)
            v = unit(z)
    hard = distances(points, v, distance).min(axis=-1).sum()
    for sharpness in (1.0, 10.0, 100.0, sharp):
        # A softened minimum of J numbers lies below it, by ln(J)/K at most.
        below = hard - float(soft_k_means_loss(points, v, sharpness, distance))
        assert 0 <= below + 1e-9 and below <= I * np.log(J) / sharpness + 1e-9
    if distance == "euclidean":
        whole = KMeans(J, init=problem(seed=3, own=False)[1], n_init=1, tol=0).fit(flat)
        np.testing.assert_allclose(hard, whole.inertia_, rtol=1e-9)
