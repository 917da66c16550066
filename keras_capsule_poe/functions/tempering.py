"""Replica exchange: chains at several temperatures that trade places."""

import keras
from keras import ops


def exchange_log_odds(free_energy, x, betas, odd=False):
    """Log of p(exchanged)/p of each neighbouring pair of replicas.

    (F_b(x) + F_b'(x')) - (F_b(x') + F_b'(x)) for replicas x at beta b and x' at b'.

    Args:
        free_energy: Function of x and a tensor (T, N) of inverse temperatures, giving F (T, N).
        x: Tensor (T, N, ...), N chains at each temperature.
        betas: Tensor (T,).
        odd: bool or scalar tensor, whether the pairs are (1, 2), (3, 4), ... and not (0, 1),
            (2, 3), ...

    Returns:
        int tensor (T,), the partner of each temperature, itself where it has none; tensor
        (T, N), the log odds, the same for both of a pair.

    Examples:

    >>> x = np.array([[0.0], [1.0], [3.0]])
    >>> partner, odds = exchange_log_odds(lambda x, b: b * x, x, np.array([0.0, 0.5, 1.0]))
    >>> np.asarray(partner).tolist(), np.asarray(odds).tolist()
    ([1, 0, 2], [[0.5], [0.5], [0.0]])
    """
    x = ops.convert_to_tensor(x)
    number = x.shape[0]
    shift = ops.cast(odd, "int32")
    index = ops.arange(number, dtype="int32")
    partner = index + 1 - 2 * ((index + shift) % 2)
    partner = ops.where((partner < 0) | (partner >= number), index, partner)
    betas = ops.broadcast_to(ops.cast(betas, x.dtype)[:, None], ops.shape(x)[:2])
    own, swapped = free_energy(x, betas), free_energy(x, ops.take(betas, partner, axis=0))
    gain = own - swapped
    return partner, gain + ops.take(gain, partner, axis=0)


def replica_exchange(free_energy, x, betas, seed, odd=False):
    """Neighbouring replicas exchange places with the probability that keeps their law.

    A Metropolis step whose target is the product of p_b over the temperatures; call it with
    `odd` false and true in turn.

    Args:
        free_energy, x, betas, odd: See `exchange_log_odds`.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.

    Returns:
        Tensor of the shape of `x`; bool tensor (T, N), whether a replica has moved.

    Examples:

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
    # Both of a pair look at one number.
    u = ops.take(u, ops.minimum(index, partner), axis=0)
    has_partner = ops.not_equal(partner, index)[:, None]
    accepted = has_partner & (u < ops.exp(ops.minimum(log_odds, 0)))
    shape = (*ops.shape(accepted), *(1 for _ in x.shape[2:]))
    return ops.where(ops.reshape(accepted, shape), ops.take(x, partner, axis=0), x), accepted
