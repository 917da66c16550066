"""Energy of a product of expert capsules: log-odds, probabilities and free energy, in nats."""

import numpy as np
from keras import backend, ops

from keras_capsule_poe.functions.norms import at_least_float32, folded, length


def log_odds(z, axis=-1):
    """Log-odds that each expert capsule is on, log |z_j|^2.

    The zero vector gives the smallest finite value of the dtype's range instead of -infinity.

    Args:
        z: Tensor (..., E), expert capsules before the squash.
        axis: The axis that holds the vector.

    Returns:
        Tensor (...), nats.

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), energy of an expert
    """
    n = length(z, axis=axis)
    tiny = float(np.finfo(backend.standardize_dtype(n.dtype)).tiny)
    return 2 * ops.log(ops.maximum(n, tiny))


def probability(z, axis=-1):
    """Probability that each expert capsule is on, |z|^2/(1+|z|^2) = sigmoid(log |z|^2).

    Args:
        z: Tensor (..., E), expert capsules before the squash.
        axis: The axis that holds the vector.

    Returns:
        Tensor (...) in [0, 1]; the length of `squash(z)`.
    """
    n = length(z, axis=axis)
    s2 = ops.square(folded(n))
    return ops.where(n > 1, 1 / (1 + s2), s2 / (1 + s2))


def expert_free_energy(z, axis=-1):
    """Free energy of each expert, -log(1 + |z_j|^2), its on/off state summed out.

    Args:
        z: Tensor (..., E), expert capsules before the squash.
        axis: The axis that holds the vector.

    Returns:
        Tensor (...), nats, zero or negative.
    """
    n = length(z, axis=axis)
    # log(1 + n^2) = 2 log n + log(1 + 1/n^2), which does not square a large n.
    return -(ops.log1p(ops.square(folded(n))) + 2 * ops.log(ops.maximum(n, 1)))


def free_energy(z):
    """Free energy of the visible capsules, F = -sum_j log(1 + |z_j|^2).

    exp(-F) is the unnormalised probability of the visible capsules that gave `z`, the
    routing coefficients held fixed.

    Args:
        z: Tensor (B, J, E), expert capsules before the squash.

    Returns:
        Tensor (B,), nats; lower is more probable.

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), free energy of the product
    """
    return ops.sum(expert_free_energy(at_least_float32(z)), axis=-1)
