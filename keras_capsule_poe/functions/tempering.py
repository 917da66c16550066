"""Replica exchange between Markov chains at several temperatures."""

import keras
from keras import ops


def exchange_log_odds(free_energy, x, betas, odd=False):
    """Return the partner (T,) of each temperature, and the log odds (T, N) of the exchange."""
    x = ops.convert_to_tensor(x)
    number = x.shape[0]
    shift = ops.cast(odd, "int32")
    index = ops.arange(number, dtype="int32")
    partner = index + 1 - 2 * ((index + shift) % 2)
    partner = ops.where((partner < 0) | (partner >= number), index, partner)
    betas = ops.broadcast_to(ops.cast(betas, x.dtype)[:, None], ops.shape(x)[:2])
    own, swapped = free_energy(x, betas), free_energy(x, ops.take(betas, partner, axis=0))
    # Log odds: (F_b(x) + F_b'(x')) - (F_b'(x) + F_b(x')).
    gain = own - swapped
    return partner, gain + ops.take(gain, partner, axis=0)


def replica_exchange(free_energy, x, betas, seed, odd=False):
    """Metropolis exchange of neighbouring replicas, which keeps their joint distribution.

    Call it with `odd` false and true in turn.

    Args:
        free_energy: Function that maps x and a tensor (T, N) of inverse temperatures to F (T, N).
        x: Tensor (T, N, ...), N chains at each of T temperatures.
        betas: Tensor (T,), inverse temperatures.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.
        odd: bool or scalar tensor. False pairs `(0, 1), (2, 3), ...`; true pairs `(1, 2), ...`

    Returns:
        Tensor of the shape of `x`; bool tensor (T, N), true for replicas that moved.

    Example:

    >>> x = np.array([[1.0], [0.0]])
    >>> moved, has_moved = replica_exchange(lambda x, b: b * x, x, np.array([1.0, 0.5]), seed=0)
    >>> np.asarray(moved).ravel().tolist()
    [0.0, 1.0]

    Reference:

    - [Swendsen & Wang, 1986](https://doi.org/10.1103/PhysRevLett.57.2607)
    - [Desjardins et al., 2010](https://proceedings.mlr.press/v9/desjardins10a.html), with RBMs
    """
    x = ops.convert_to_tensor(x)
    partner, log_odds = exchange_log_odds(free_energy, x, betas, odd)
    index = ops.arange(x.shape[0], dtype="int32")
    u = keras.random.uniform(ops.shape(log_odds), dtype=log_odds.dtype, seed=seed)
    # Both replicas of a pair share one random number.
    u = ops.take(u, ops.minimum(index, partner), axis=0)
    has_partner = ops.not_equal(partner, index)[:, None]
    accepted = has_partner & (u < ops.exp(ops.minimum(log_odds, 0)))
    shape = (*ops.shape(accepted), *(1 for _ in x.shape[2:]))
    return ops.where(ops.reshape(accepted, shape), ops.take(x, partner, axis=0), x), accepted
