"""The partition function of a harmonium: exact for a small layer, else by annealing.

log Z = log of the sum of exp(-F(x)). Annealed importance sampling goes from a machine without
maps, whose Z is known, to the harmonium; from samples of the harmonium it goes back.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops
from scipy.special import logsumexp

from keras_capsule_poe.functions.annealing import (
    annealed_importance,
    annealing_schedule,
    log_mean,
)
from keras_capsule_poe.functions.checks import whole_number
from keras_capsule_poe.functions.harmonium import gibbs_step
from keras_capsule_poe.functions.harmonium_units import CentredUnits
from keras_capsule_poe.functions.randomness import streams
from keras_capsule_poe.functions.units import BinaryUnits

MOST_NEURONS = 20
_BLOCK = 4096


class AnnealedPartition(NamedTuple):
    """What annealing says of log Z.

    `log_z`: the estimate, nats.
    `error`: its standard error.
    `log_weights`: array (N,), the estimate of each chain; on average they are below log Z where
        the annealing goes forward, and above it where it goes back.
    """

    log_z: float
    error: float
    log_weights: Any


def enumerated_log_partition(harmonium):
    """log Z, the states of the smaller layer of binary units enumerated.

    Args:
        harmonium: `Harmonium`, of which a side has at most 20 neurons, all binary.

    Returns:
        float, nats.

    Raises:
        ValueError: If no side is small and binary.

    Examples:

    >>> from keras_capsule_poe.functions import DenseMaps, Harmonium
    >>> machine = Harmonium(DenseMaps(ops.zeros((3, 1000))))
    >>> round(enumerated_log_partition(machine) / np.log(2))
    1003
    """
    _, states = _enumerated(harmonium)
    return float(logsumexp(np.concatenate([logs for _, logs in states])))


def draw_enumerated(harmonium, n, seed=0):
    """Independent draws of p(x), the states of the smaller layer of binary units enumerated.

    Args:
        harmonium: See `enumerated_log_partition`.
        n: int.
        seed: int.

    Returns:
        Tensor (n, ...), as the visible units send them.

    Raises:
        ValueError: If no side is small and binary.

    Examples:

    >>> from keras_capsule_poe.functions import DenseMaps, Harmonium
    >>> draw_enumerated(Harmonium(DenseMaps(ops.zeros((3, 1000)))), 5).shape
    TensorShape([5, 1000])
    """
    is_visible, states = _enumerated(harmonium)
    states, logs = (np.concatenate(parts) for parts in zip(*states))
    p = np.exp(logs - logsumexp(logs))
    drawn = np.random.default_rng(seed).choice(len(p), n, p=p / p.sum())
    x = ops.convert_to_tensor(states[drawn])
    if is_visible:
        return x
    return harmonium.visible.sample(harmonium.transposed().fields(x), streams(seed, 1)[0])


def annealed_partition(harmonium, betas=None, chains=100, base_bias=None, seed=0):
    """log Z by annealed importance sampling, hidden units summed out.

    Chains start at the machine without maps and with visible biases `base_bias`, and go through
    `harmonium.tempered(beta)`, a step of Gibbs sampling at each. The weights are those of Z/Z_0,
    unbiased; their logarithms are too low.

    Args:
        harmonium: `Harmonium`.
        betas: Array, from zero to one; `None`: `annealing_schedule()`.
        chains: int, N, two or more.
        base_bias: Tensor, of the visible shape, b_0: log p/(1 - p) of the data's means p is best.
            `None`: the visible biases.
        seed: int.

    Returns:
        `AnnealedPartition`.

    Raises:
        ValueError: If `betas` does not go from zero to one or there are fewer chains than two.

    Examples:

    >>> from keras_capsule_poe.functions import DenseMaps, Harmonium
    >>> machine = Harmonium(DenseMaps(ops.ones((3, 4))))
    >>> found = annealed_partition(machine, annealing_schedule((1.0, 50)), chains=20)
    >>> abs(found.log_z - enumerated_log_partition(machine)) < 1
    True

    Reference:

    - [Neal, 2001](https://arxiv.org/abs/physics/9803008)
    - [Salakhutdinov & Murray, 2008](https://doi.org/10.1145/1390156.1390266), section 4
    """
    chains, betas = whole_number("chains", chains, least=2), _schedule(betas)
    base = _base(harmonium, base_bias)
    first, rest = streams(seed, 2)
    z = ops.broadcast_to(base[None], (chains, *base.shape))
    x = harmonium.visible.sample(z, first)
    log_weights = _anneal(harmonium, x, betas, base, rest)
    return _estimate(_base_log_partition(harmonium, base) + log_weights)


def reverse_annealed_partition(harmonium, x, betas=None, base_bias=None, seed=0):
    """log Z by annealing from samples of the harmonium back to the machine without maps.

    If x are exact samples the weights are those of Z_0/Z, unbiased, and the logarithms of their
    inverses too high: with `annealed_partition` they bracket log Z.

    Args:
        harmonium: `Harmonium`.
        x: Tensor (N, ...), samples of p(x), as the visible units send them.
        betas, base_bias, seed: See `annealed_partition`.

    Returns:
        `AnnealedPartition`.

    Raises:
        ValueError: If `betas` does not go from zero to one or there are fewer samples than two.

    Examples:

    >>> from keras_capsule_poe.functions import DenseMaps, Harmonium
    >>> machine, x = Harmonium(DenseMaps(ops.zeros((3, 4)))), np.zeros((2, 4), "float32")
    >>> found = reverse_annealed_partition(machine, x, annealing_schedule((1.0, 5)))
    >>> round(found.log_z / np.log(2))
    7

    Reference:

    - [Grosse et al., 2015](https://arxiv.org/abs/1511.02543), bidirectional Monte Carlo
    """
    x = ops.cast(x, harmonium.maps.kernel.dtype)
    whole_number("len(x)", int(x.shape[0]), least=2)
    betas, base = _schedule(betas)[::-1], _base(harmonium, base_bias)
    log_weights = _anneal(harmonium, x, betas, base, *streams(seed, 1))
    log_z = _base_log_partition(harmonium, base)
    found = _estimate(log_weights)
    return AnnealedPartition(log_z - found.log_z, found.error, log_z - found.log_weights)


def log_likelihood(harmonium, x, log_z):
    """Mean log p(x) over images, and its standard error over them.

    Args:
        harmonium: `Harmonium`.
        x: Array (B, ...), what the visible units send.
        log_z: float, nats.

    Returns:
        float mean, float standard error, nats.

    Examples:

    >>> from keras_capsule_poe.functions import DenseMaps, Harmonium
    >>> machine = Harmonium(DenseMaps(ops.zeros((3, 4))))
    >>> mean, error = log_likelihood(machine, np.eye(4), enumerated_log_partition(machine))
    >>> round(mean / np.log(2)), error
    (-4, 0.0)
    """
    logs = np.concatenate(
        [-_numbers(harmonium.free_energy(x[i : i + _BLOCK])) for i in range(0, len(x), _BLOCK)]
    )
    error = logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.nan
    return float(logs.mean() - log_z), float(error)


def _enumerated(harmonium):
    """Whether the visible side is the smaller; and blocks of states and their -F, both arrays."""
    sides = [
        side
        for side in (harmonium, harmonium.transposed())
        if isinstance(_plain(side.visible), BinaryUnits)
    ]
    if not sides or min(_neurons(side) for side in sides) > MOST_NEURONS:
        shapes = harmonium.maps.output_shape, harmonium.maps.input_shape
        raise ValueError(
            f"At most {MOST_NEURONS} binary neurons are enumerated. Received: hidden units "
            f"{shapes[0]} and visible units {shapes[1]}; `annealed_partition` estimates larger "
            "harmoniums"
        )
    side = min(sides, key=_neurons)
    neurons, offset = _neurons(side), getattr(side.visible, "offset", 0.0)
    found, number = [], 2**neurons
    for first in range(0, number, _BLOCK):
        block = np.arange(first, min(first + _BLOCK, number))[:, None]
        bits = ((block >> np.arange(neurons)) & 1).reshape(-1, *side.maps.input_shape)
        bits = ops.cast(bits, side.maps.kernel.dtype)
        states = bits - ops.cast(offset, bits.dtype)
        found.append((ops.convert_to_numpy(states), -_numbers(side.free_energy(states))))
    return side is harmonium, found


def _anneal(harmonium, x, betas, base, seed):
    """Log weights of chains that start at betas[0] and go through the others."""

    # F_b is not linear in b, the hidden units being summed out: a step weighs F_b - F_next. What
    # the hidden units receive is the same at each b, and is carried from step to step.
    def gain(x, fields, before, after):
        here, there = (harmonium.tempered(beta, base) for beta in (before, after))
        return here.free_energy(x, fields) - there.free_energy(x, fields)

    def kernel(x, fields, beta, seed):
        x, _ = gibbs_step(harmonium.tempered(beta, base), x, seed, fields)
        return x, harmonium.fields(x)

    run = annealed_importance(harmonium.fields, kernel, x, betas, seed, gain)
    return _numbers(run.log_weights)


def _base(harmonium, bias):
    bias = harmonium.visible_bias if bias is None else bias
    return ops.cast(bias, harmonium.maps.kernel.dtype)


def _base_log_partition(harmonium, base):
    """log Z of the machine without maps."""
    nothing = ops.zeros(harmonium.maps.output_shape, base.dtype)
    logs = harmonium.visible.free_energy(base), harmonium.hidden.free_energy(nothing)
    return -sum(_numbers(part).sum() for part in logs)


def _estimate(log_weights):
    return AnnealedPartition(*log_mean(log_weights), log_weights)


def _schedule(betas):
    betas = annealing_schedule() if betas is None else np.asarray(betas, "float64")
    rising = betas.ndim == 1 and len(betas) > 1 and np.all(np.diff(betas) > 0)
    if not (rising and betas[0] == 0 and betas[-1] == 1):
        shown = np.array2string(betas, threshold=6)
        raise ValueError(f"`betas` must rise from zero to one. Received: betas={shown}")
    return betas


def _plain(units):
    return units.units if isinstance(units, CentredUnits) else units


def _neurons(side):
    return int(np.prod(side.maps.input_shape))


def _numbers(tensor):
    return ops.convert_to_numpy(tensor).astype("float64")
