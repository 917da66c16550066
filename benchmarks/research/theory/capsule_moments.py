"""Exact log Z of products of expert capsules in closed form, with fixed coupling coefficients."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.core.numerics import streams

# Time and memory double with each expert.
MOST_EXPERTS = 12


class CapsulePartition(NamedTuple):
    """log Z in nats, and the probability (J,) that each expert is on."""

    log_partition: float
    on: Any


def expert_covariance(kernel, coefficients, variance):
    """Return the covariance (J, E, J, E) of z_j = sum_i c_ij W_ij x_i, x of one variance."""
    maps = _weighted(kernel, coefficients)
    return variance * np.tensordot(maps, maps, axes=((0, 3), (0, 3)))


def disjoint_log_partition(kernel, coefficients, base, hidden_bias=None):
    """Return log Z in nats of experts that share no input, of independent inputs of mean zero.

    `base` is their reference distribution, or its variance. With correlated inputs z_j and z_k are
    not independent; see `gaussian_partition`.
    """
    variance = getattr(base, "variance", base)
    if not np.isscalar(variance):
        raise ValueError(
            "`base` must have independent inputs of one variance: experts of correlated inputs are "
            f"not independent. Received: {base!r:.80}"
        )
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
    """Return the `CapsulePartition` of at most 12 experts whose z is Gaussian."""
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
    # Z = E prod_j (1 + |z_j|^2) is the sum of all 2^J moments (Magnus, 1978); none is negative.
    moments = _moments(cumulants)
    total = moments.sum()
    members = np.arange(len(moments))[:, None] >> np.arange(experts) & 1
    return CapsulePartition(float(np.log(total)), moments @ members / total)


def _cumulants(blocks):
    """Return joint cumulants of `|z_j|^2` for every set of experts; blocks S_jk (J, J, E, E)."""
    experts = len(blocks)
    cumulants = np.zeros(1 << experts)
    # Cumulant of a set of n: 2^(n-1) times the sum over its cyclic orders of tr(S_12 ... S_n1).
    # `paths` holds the products S_ab ... S_yz from the set's lowest expert to each other one.
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
    """Return the cumulants that means of z (J, E) add: open paths through a set of experts."""
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
    """Return `2^(n-1)`, the factor of the joint cumulant of n quadratic forms."""
    return 2.0 ** (experts - 1)


def _moments(cumulants):
    """Return `E prod_{j in T} |z_j|^2` for every set T, from the joint cumulants."""
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
    """Draw exact z (n, J, E) from P for experts uncorrelated under a Gaussian base."""
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
    # P(z_j) mixes E + 1 cases: off (Gaussian), or on along one principal direction (chi of 3).
    cases = np.concatenate([np.ones((experts, 1)), values], axis=1)
    seeds = streams(seed, 3)
    # Directions without variance get a finite logit that is never drawn.
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
