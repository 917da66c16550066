"""What routing with replaced logits is, and is not, as soft k-means of the layer's own votes.

`RoutingLayer` against `soft_k_means_step`, which is tested against NumPy, autodiff and KMeans.
Rejected, as they rest where the loss does not: agreements that add up, with the squash of z, by
cosine of votes of different lengths, and a softmax over the inputs.
"""

import numpy as np
import pytest
import tensorflow as tf
from theory.soft_k_means import soft_k_means_loss, soft_k_means_step

from keras_capsule_poe import RoutingLayer

B, I, J, E, K = 2, 12, 3, 4, 3.0
# Float64 sums of a dozen terms of order one, in another order, through a few softmaxes.
CLOSE = {"rtol": 1e-10, "atol": 1e-11}


def problem(seed=0, shared=True, rotations=False):
    """Capsules (B, I, E) and maps, of which each may be a rotation."""
    random = np.random.default_rng(seed)
    kernel = random.normal(size=(1 if shared else I, J, E, E)) / 2
    if rotations:
        kernel = np.linalg.qr(kernel)[0]
    return random.normal(size=(B, I, E)), kernel


def routed(x, kernel, updates=1, **options):
    """`Routing` by a layer in float64; replaced logits and projections unless told otherwise."""
    options = {"agreement": "projection", "logits": "replaced", "agreement_scale": K, **options}
    options["routing_iterations"] = updates + 1
    shared = len(kernel) == 1
    layer = RoutingLayer(J, E, shared_weights=shared, dtype="float64", **options)
    layer.build(x.shape)
    layer.set_weights([kernel])
    return [np.asarray(array) for array in layer.route(tf.constant(x))]


def votes_of(x, kernel):
    return np.einsum("bid,ijed->bije", x, np.broadcast_to(kernel, (I, *kernel.shape[1:])))


def steps(votes, centres, sharpness=K):
    return (
        np.asarray(array) for array in soft_k_means_step(votes, centres, sharpness, "projection")
    )


def slope(votes, z, sharpness=K, weights=1.0):
    """Gradient of the loss in the centres, each input counted by its weight (B, I)."""
    z = tf.constant(z)
    with tf.GradientTape() as tape:
        tape.watch(z)
        # An input a problem of its own: its term of the loss.
        terms = soft_k_means_loss(votes[:, :, None], z[:, None], sharpness, "projection")
        loss = tf.reduce_sum(weights * terms)
    return np.abs(tape.gradient(loss, z).numpy()).max()


@pytest.mark.parametrize("implementation", ["reference", "fused"])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_an_iteration_is_a_step_of_soft_k_means(shared, implementation):
    x, kernel = problem(shared=shared)
    votes = votes_of(x, kernel)
    centres = votes.mean(axis=1)
    for iterations in range(1, 5):
        c, z = routed(x, kernel, iterations, implementation=implementation)
        right, centres = steps(votes, centres)
        np.testing.assert_allclose(c, right, **CLOSE)
        np.testing.assert_allclose(z, centres, **CLOSE)
    # The scale is a unit of measure: directions, and so shares, are the same.
    scaled = routed(x, kernel, 4, implementation=implementation, coefficient_sum=2.5)
    np.testing.assert_allclose(scaled[0], 2.5 * c, **CLOSE)
    np.testing.assert_allclose(scaled[1], 2.5 * z, **CLOSE)


def test_a_leak_is_one_more_cluster_at_distance_zero():
    x, kernel = problem(seed=1)
    votes = np.concatenate([votes_of(x, kernel), np.zeros((B, I, 1, E))], axis=2)
    centres = votes.sum(axis=1)
    for iterations in range(1, 4):
        c, z = routed(x, kernel, iterations, leaky=True)
        right, centres = steps(votes, centres)
        np.testing.assert_allclose(c, right[..., :J], **CLOSE)
        np.testing.assert_allclose(z, centres[:, :J], **CLOSE)


def test_where_routing_rests_the_loss_is_stationary():
    x, kernel = problem(seed=2)
    votes = votes_of(x, kernel)
    c, z = routed(x, kernel, 120, implementation="reference")
    # Fifty steps reach rounding.
    assert slope(votes, z) < 1e-11
    # A capsule is as long as its cluster is tight: minus the sum of shares times distances.
    directions = z / np.linalg.norm(z, axis=-1, keepdims=True)
    tightness = np.einsum("bij,bije,bje->bj", c, votes, directions)
    np.testing.assert_allclose(np.linalg.norm(z, axis=-1), tightness, **CLOSE)


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "options",
    [
        {"logits": "accumulated"},
        {"agreement": "dot"},
        {"agreement": "cosine"},
        {"softmax_over": "inputs"},
    ],
    ids=lambda options: "-".join(options.values()),
)
def test_other_forms_rest_elsewhere(options):
    x, kernel = problem(seed=2)
    _, z = routed(x, kernel, 120, implementation="reference", **options)
    assert slope(votes_of(x, kernel), z) > 1e-3


def test_by_cosine_it_is_the_step_of_votes_counted_by_their_length():
    """Where the votes of an input have one length, as rotations leave it; else of no such loss."""
    for rotations in (True, False):
        x, kernel = problem(seed=3, shared=not rotations, rotations=rotations)
        votes = votes_of(x, kernel)
        lengths = np.linalg.norm(votes, axis=-1, keepdims=True)
        _, z = routed(x, kernel, 150, agreement="cosine", implementation="reference")
        counted = slope(votes / lengths, z, weights=lengths[:, :, 0, 0])
        assert counted < 1e-11 if rotations else counted > 1e-3
        # Each vote counted once: not the same.
        assert slope(votes / lengths, z) > 1e-3
    x, kernel = problem(seed=3, shared=False, rotations=True)
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    for found, right in zip(routed(x, kernel, 3, agreement="cosine"), routed(x, kernel, 3)):
        np.testing.assert_allclose(found, right, **CLOSE)


def test_agreements_that_add_up_end_as_hard_k_means():
    x, kernel = problem(seed=4)
    votes = votes_of(x, kernel)
    c, z = routed(x, kernel, 150, logits="accumulated", implementation="reference")
    # 150 times the gap between a vote's agreements: whole shares.
    np.testing.assert_allclose(c.max(axis=-1), 1, atol=1e-9)
    hard, centres = steps(votes, z, sharpness=1e6)
    np.testing.assert_allclose(hard, c, atol=1e-9)
    np.testing.assert_allclose(centres, z, **CLOSE)
    # Replaced ones do not.
    assert routed(x, kernel, 150, implementation="reference")[0].max(axis=-1).min() < 0.9


def test_votes_that_do_not_differ_are_never_told_apart():
    """Of one and the same map, or of rotations, all centres start as one: at a saddle."""
    x, kernel = problem(seed=5, rotations=True)
    for maps in (kernel, np.repeat(kernel[:, :1], J, axis=1)):
        c, z = routed(x, maps, 3)
        # Of rotations by rounding alone, which a step multiplies by less than 100.
        np.testing.assert_allclose(c, 1 / J, rtol=1e-9)
        votes = votes_of(x, maps)
        assert slope(votes, z) < 1e-8
        # It is no best point: from centres at random the loss falls lower.
        loss = soft_k_means_loss(votes, z, K, "projection")
        centres = np.random.default_rng(0).normal(size=z.shape)
        for _ in range(50):
            _, centres = steps(votes, centres)
        assert np.all(soft_k_means_loss(votes, centres, K, "projection") < loss - 0.1)
