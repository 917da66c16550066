"""Soft k-means of votes, of which one iteration of routing with replaced logits is a step.

    L = -(1/K) sum_i ln sum_j exp(-K d(u_ij, v_j))            K, the sharpness
    c_ij = softmax over j of -K d(u_ij, v_j),    dL/dv_j = sum_i c_ij d'(u_ij, v_j)

with d = |u - v|^2 ("euclidean") or d = -u . v/|v| ("projection"). For any shares c' of the inputs,
L <= sum_ij c'_ij d(u_ij, v_j) + (1/K) sum_ij c'_ij ln c'_ij, with equality at c. So the centres
that are best for c are never worse for L.
"""

from keras import ops

from keras_capsule_poe.functions.checks import one_of, real_number
from keras_capsule_poe.functions.norms import at_least_float32, direction
from keras_capsule_poe.functions.routing import Routing

DISTANCES = ("euclidean", "projection")


def soft_k_means_loss(votes, centres, sharpness, distance="euclidean"):
    """L = -(1/K) sum_i ln sum_j exp(-K d(u_ij, v_j)), at most ln(J)/K an input below hard k-means.

    Args:
        votes: Tensor (..., I, J, E), vote u_ij of input i for cluster j; or (..., I, 1, E), points
            that are the same for all clusters.
        centres: Tensor (..., J, E), v_j.
        sharpness: float, K, above zero: 1/(2 variance) of Gaussian clusters, or the concentration
            of clusters of directions.
        distance: `"euclidean"`, |u - v|^2; or `"projection"`, -u . v/|v|, the cosine distance
            less one where votes have length one.

    Returns:
        Tensor (...), at least float32, in the units of the distance.

    Raises:
        ValueError: If `sharpness` or `distance` has no meaning.

    Examples:

    >>> points = np.array([[0.0], [1.0], [9.0]])
    >>> float(soft_k_means_loss(points[:, None], np.array([[0.5], [9.0]]), sharpness=100.0))
    0.5

    Reference:

    - [Su, 2018](https://kexue.fm/archives/5112), routing as clustering
    - [Banerjee et al., 2005](https://jmlr.org/papers/v6/banerjee05a.html), clusters of directions
    """
    sharpness = real_number("sharpness", sharpness, above=0)
    logits = -sharpness * _distances(votes, centres, distance)
    return -ops.sum(ops.logsumexp(logits, axis=-1), axis=-1) / sharpness


def soft_k_means_step(votes, centres, sharpness, distance="euclidean"):
    """One step of soft k-means: shares by the old centres, then the centres best for the shares.

    Never raises `soft_k_means_loss`; where it moves nothing the loss is stationary.

    Args:
        votes, centres, sharpness, distance: See `soft_k_means_loss`.

    Returns:
        `Routing`: coefficients c_ij (..., I, J), and the new centres z_j (..., J, E), the mean
        of the votes weighted by c, or with projections their sum: there any length is as good.

    Raises:
        ValueError: If `sharpness` or `distance` has no meaning.

    Examples:

    >>> points = np.array([[0.0], [1.0], [9.0]])
    >>> step = soft_k_means_step(points[:, None], np.array([[0.0], [5.0]]), sharpness=100.0)
    >>> np.asarray(step.z).tolist()
    [[0.5], [9.0]]

    Reference:

    - [Su, 2018](https://kexue.fm/archives/5112)
    """
    sharpness = real_number("sharpness", sharpness, above=0)
    logits = -sharpness * _distances(votes, centres, distance)
    c = weights = ops.softmax(logits, axis=-1)
    if distance == "euclidean":
        # c_ij / sum_i c_ij from logarithms: a cluster may have next to nothing.
        weights = ops.softmax(ops.log_softmax(logits, axis=-1), axis=-2)
    return Routing(c, ops.sum(weights[..., None] * at_least_float32(votes), axis=-3))


def _distances(votes, centres, distance):
    """d(u_ij, v_j), (..., I, J)."""
    one_of("distance", distance, DISTANCES)
    votes, centres = at_least_float32(votes), at_least_float32(centres)[..., None, :, :]
    if distance == "euclidean":
        return ops.sum(ops.square(votes - centres), axis=-1)
    return -ops.sum(votes * direction(centres), axis=-1)
