"""Soft k-means of votes; one iteration of routing with replaced logits is one step of it.

`L = -(1/K) sum_i ln sum_j exp(-K d(u_ij, v_j))`, with K the sharpness. The distance d is
`|u - v|^2` ("euclidean") or `-u . v/|v|` ("projection").
"""

from keras import ops

from keras_capsule_poe.core.numerics import at_least_float32, direction, one_of, real_number
from keras_capsule_poe.core.routing import Routing

DISTANCES = ("euclidean", "projection")


def soft_k_means_loss(votes, centres, sharpness, distance="euclidean"):
    """Return the loss L (...) of votes (..., I, J, E) and centres (..., J, E)."""
    sharpness = real_number("sharpness", sharpness, above=0)
    logits = -sharpness * _distances(votes, centres, distance)
    return -ops.sum(ops.logsumexp(logits, axis=-1), axis=-1) / sharpness


def soft_k_means_step(votes, centres, sharpness, distance="euclidean"):
    """Return the `Routing` of one step, which never raises `soft_k_means_loss`."""
    sharpness = real_number("sharpness", sharpness, above=0)
    logits = -sharpness * _distances(votes, centres, distance)
    c = weights = ops.softmax(logits, axis=-1)
    if distance == "euclidean":
        # Normalise c_ij over i in log space, because a cluster's total may underflow.
        weights = ops.softmax(ops.log_softmax(logits, axis=-1), axis=-2)
    return Routing(c, ops.sum(weights[..., None] * at_least_float32(votes), axis=-3))


def _distances(votes, centres, distance):
    """Return d(u_ij, v_j) (..., I, J)."""
    one_of("distance", distance, DISTANCES)
    votes, centres = at_least_float32(votes), at_least_float32(centres)[..., None, :, :]
    if distance == "euclidean":
        return ops.sum(ops.square(votes - centres), axis=-1)
    return -ops.sum(votes * direction(centres), axis=-1)
