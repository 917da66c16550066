"""log Z of products of expert capsules, exactly: closed forms, to judge samplers by.

Z = E_P0 prod_j (1 + |z_j|^2) = sum over sets T of experts of E prod_{j in T} |z_j|^2, with the
routing coefficients fixed. Under a Gaussian base z is Gaussian, and these moments have a closed
form at every number of inputs and every size of experts.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.randomness import streams

# Time and memory double with each expert.
MOST_EXPERTS = 12


class CapsulePartition(NamedTuple):
    """`log_partition`, nats, and `on` (J,), the probability of each expert to be on."""

    log_partition: float
    on: Any


def expert_covariance(kernel, coefficients, variance):
    """Covariance of the experts' z_j = sum_i c_ij W_ij x_i, where all x have one variance.

    S_jk = variance sum_i c_ij c_ik W_ij W_ik^T. For a full covariance of x, see
    `CentredGaussian.of_experts`.

    Args:
        kernel: Array (I, J, E, D), the maps W_ij.
        coefficients: Array (I, J), the routing coefficients c_ij.
        variance: float, of each coordinate of x, uncorrelated; a base measure's `variance`.

    Returns:
        Array (J, E, J, E).

    Examples:

    >>> expert_covariance(np.ones((6, 5, 3, 4)), np.ones((6, 5)), 0.1).shape
    (5, 3, 5, 3)
    """
    maps = _weighted(kernel, coefficients)
    return variance * np.tensordot(maps, maps, axes=((0, 3), (0, 3)))


def disjoint_log_partition(kernel, coefficients, variance, hidden_bias=None):
    """log Z where no two experts share an input.

    sum_j log(1 + |b_j|^2 + variance sum_i c_ij^2 |W_ij|^2), with b_j the experts' bias. Exact
    for every base with independent, uncorrelated input capsules of mean zero, as
    `UniformBall` and `SquashedGaussian` are, and at every size.

    Args:
        kernel, coefficients, variance: See `expert_covariance`.
        hidden_bias: Array (J, E), b; or None.

    Returns:
        float, nats.

    Raises:
        ValueError: If an input has a map that is not zero to more than one expert.

    Examples:

    >>> kernel, c = np.ones((2, 2, 3, 4)), np.eye(2)
    >>> bool(np.isclose(disjoint_log_partition(kernel, c, 0.5), 2 * np.log(7)))
    True
    """
    squares = np.sum(np.square(_weighted(kernel, coefficients)), axis=(2, 3))
    shared = np.sum(squares > 0, axis=1) > 1
    if shared.any():
        raise ValueError(
            "`coefficients` must give each input to one expert at most: experts that share "
            f"inputs are not independent. Received: {shared.sum()} shared inputs"
        )
    own = 0.0 if hidden_bias is None else np.square(np.asarray(hidden_bias, "float64")).sum(axis=1)
    return float(np.log1p(own + variance * squares.sum(axis=0)).sum())


def gaussian_partition(covariance, hidden_bias=None):
    """log Z of overlapping experts under a Gaussian base, and how often each expert is on.

    Joint cumulants of |z_j|^2 over a set T of n experts are 2^(n-1) times the sum over the cyclic
    orders of T, in both directions, of tr(S_12 S_23 ... S_n1), and over all orders of
    b_1 S_12 S_23 ... b_n, b_j the mean of z_j: a dynamic program over subsets. Moments follow
    from cumulants, and Z is the sum of all 2^J moments, none of them negative;
    the share of those with expert j in T is P(on_j).

    Args:
        covariance: Array (J, E, J, E), of the experts' z.
        hidden_bias: Array (J, E), their mean b; `None`: zero.

    Returns:
        `CapsulePartition`.

    Raises:
        ValueError: If a shape is another, or there are more than 12 experts.

    Examples:

    >>> found = gaussian_partition(np.eye(6).reshape(2, 3, 2, 3))
    >>> bool(np.isclose(found.log_partition, 2 * np.log(4))), found.on.round(2).tolist()
    (True, [0.75, 0.75])

    Reference:

    - [Magnus, 1978](https://doi.org/10.1111/j.1467-9574.1978.tb01399.x), moments of products of
      quadratic forms in normal variables
    """
    blocks = np.asarray(covariance, "float64")
    if blocks.ndim != 4 or blocks.shape[:2] != blocks.shape[2:]:
        raise ValueError(
            f"`covariance` must be of shape (J, E, J, E). Received: shape {blocks.shape}"
        )
    experts = len(blocks)
    if experts > MOST_EXPERTS:
        raise ValueError(
            f"`covariance` must be of {MOST_EXPERTS} experts at most. Received: {experts}; "
            "`log_partition_bracket` estimates larger models"
        )
    cumulants = _cumulants(blocks.transpose(0, 2, 1, 3))
    if hidden_bias is not None:
        mean = np.asarray(hidden_bias, "float64")
        if mean.shape != blocks.shape[:2]:
            raise ValueError(
                f"`hidden_bias` must be of shape {blocks.shape[:2]}. Received: shape {mean.shape}"
            )
        cumulants = cumulants + _mean_cumulants(blocks.transpose(0, 2, 1, 3), mean)
    moments = _moments(cumulants)
    total = moments.sum()
    members = np.arange(len(moments))[:, None] >> np.arange(experts) & 1
    return CapsulePartition(float(np.log(total)), moments @ members / total)


def _cumulants(blocks):
    """Joint cumulants of |z_j|^2 for every set of experts, (2^J,); blocks S_jk (J, J, E, E)."""
    experts = len(blocks)
    cumulants = np.zeros(1 << experts)
    # Products S_ab ... S_yz along all paths through a set, from its lowest expert a to z.
    paths = {}
    for members in range(1, 1 << experts):
        listed = [j for j in range(experts) if members >> j & 1]
        first, rest = listed[0], listed[1:]
        if not rest:
            cumulants[members] = np.trace(blocks[first, first])
            continue
        for last in rest:
            before = members ^ 1 << last
            if before == 1 << first:
                paths[members, last] = blocks[first, last]
            else:
                paths[members, last] = sum(
                    paths[before, j] @ blocks[j, last] for j in rest if j != last
                )
        closed = sum(np.sum(paths[members, last] * blocks[first, last]) for last in rest)
        cumulants[members] = cyclic_factor(len(listed)) * closed
    return cumulants


def _mean_cumulants(blocks, mean):
    """What means of z (J, E) add to the cumulants: open paths through a set, from b to b."""
    experts = len(blocks)
    cumulants, paths = np.zeros(1 << experts), {}
    for members in range(1, 1 << experts):
        listed = [j for j in range(experts) if members >> j & 1]
        for last in listed:
            before = members ^ 1 << last
            paths[members, last] = (
                mean[last]
                if not before
                else sum(paths[before, j] @ blocks[j, last] for j in listed if j != last)
            )
        ends = sum(paths[members, last] @ mean[last] for last in listed)
        cumulants[members] = cyclic_factor(len(listed)) * ends
    return cumulants


def cyclic_factor(experts):
    """2^(n-1), of the joint cumulant of n quadratic forms."""
    return 2.0 ** (experts - 1)


def _moments(cumulants):
    """E prod_{j in T} |z_j|^2 for every set T: the sum over the block that its lowest is in."""
    moments = np.zeros_like(cumulants)
    moments[0] = 1
    for members in range(1, len(cumulants)):
        lowest = members & -members
        others = members ^ lowest
        subset = others
        while True:
            moments[members] += cumulants[subset | lowest] * moments[others ^ subset]
            if not subset:
                break
            subset = (subset - 1) & others
    return moments


def draw_independent_experts(covariance, n, seed, dtype=None):
    """Independent draws of z from P where experts are uncorrelated under a Gaussian base.

    P(z_j) is proportional to N(z_j; 0, S_j) (1 + |z_j|^2): with probability 1/(1 + tr S_j) the
    Gaussian itself, else that Gaussian weighted by |z_j|^2, in which one principal direction,
    drawn by its variance, has the length of a chi of three dimensions.

    Args:
        covariance: Array (J, E, J, E), with S_jk = 0 between experts.
        n: int, how many.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.
        dtype: Of the draws, Keras' float by default.

    Returns:
        Tensor (n, J, E), exact draws: the start of reverse annealing, or of a test.

    Raises:
        ValueError: If experts are correlated.

    Examples:

    >>> draw_independent_experts(np.eye(6).reshape(2, 3, 2, 3), n=5, seed=0).shape
    TensorShape([5, 2, 3])
    """
    covariance = np.asarray(covariance, "float64")
    experts, dim = covariance.shape[:2]
    between = covariance * (1 - np.eye(experts))[:, None, :, None]
    if np.abs(between).max() > 1e-12 * np.abs(covariance).max():
        raise ValueError(
            "`covariance` must be zero between experts. "
            f"Received: one of up to {np.abs(between).max():g}"
        )
    dtype = keras.backend.standardize_dtype(dtype or keras.config.floatx())
    values, vectors = np.linalg.eigh(np.einsum("jejf->jef", covariance))
    values = np.maximum(values, 0)
    # E + 1 cases for each expert: off, or on along one direction.
    cases = np.concatenate([np.ones((experts, 1)), values], axis=1)
    seeds = streams(seed, 3)
    # Nothing is gained by the directions of no variance: their log is merely finite.
    logits = ops.convert_to_tensor(np.log(np.maximum(cases, 1e-30)), dtype=dtype)
    case = ops.transpose(keras.random.categorical(logits, n, seed=seeds[0]))
    is_long = ops.one_hot(case, dim + 1, dtype="bool")[..., 1:]
    noise = keras.random.normal((n, experts, dim), dtype=dtype, seed=seeds[1])
    more = keras.random.normal((2, n, experts, dim), dtype=dtype, seed=seeds[2])
    chi = ops.sqrt(ops.square(noise) + ops.sum(ops.square(more), axis=0))
    long = ops.where(noise < 0, -chi, chi)
    factor = ops.convert_to_tensor(vectors * np.sqrt(values)[:, None], dtype=dtype)
    return ops.einsum("nje,jfe->njf", ops.where(is_long, long, noise), factor)


def _weighted(kernel, coefficients):
    kernel, coefficients = np.asarray(kernel, "float64"), np.asarray(coefficients, "float64")
    if kernel.ndim != 4 or coefficients.shape != kernel.shape[:2]:
        raise ValueError(
            "`kernel` (I, J, E, D) and `coefficients` (I, J) must fit. "
            f"Received: shapes {kernel.shape} and {coefficients.shape}"
        )
    return coefficients[:, :, None, None] * kernel
