"""The partition function of an RBM: by enumeration, or by annealed importance sampling."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops
from scipy.special import logsumexp

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.annealing import annealed_importance, annealing_schedule, log_mean
from keras_capsule_poe.core.binary_states import MOST_NEURONS
from keras_capsule_poe.core.harmonium import Harmonium, gibbs_step, plain_units
from keras_capsule_poe.core.numerics import whole_number
from keras_capsule_poe.core.randomness import streams
from keras_capsule_poe.core.units import BinaryUnits

_BLOCK = 4096


class AnnealedPartition(NamedTuple):
    """Estimate of log Z, its standard error, and the estimates (N,) of single chains (nats)."""

    log_z: float
    error: float
    log_weights: Any


def enumerated_log_partition(harmonium: Harmonium) -> float:
    """Return the exact log Z of an RBM, by enumeration of the smaller binary layer.

    Args:
        harmonium: `Harmonium` with at most 20 neurons on one side, all binary.

    Returns:
        float, nats.

    Raises:
        ValueError: If no binary side is small enough.

    Example:

    >>> from keras_capsule_poe.functions import DenseMaps, Harmonium
    >>> machine = Harmonium(DenseMaps(ops.zeros((3, 1000))))
    >>> round(enumerated_log_partition(machine) / np.log(2))
    1003
    """
    _, states = _enumerated(harmonium)
    return float(logsumexp(np.concatenate([logs for _, logs in states])))


def draw_enumerated(harmonium, n, seed=0):
    """Draw n independent x (n, ...) from p(x), by enumeration of the smaller binary layer."""
    is_visible, states = _enumerated(harmonium)
    states, logs = (np.concatenate(parts) for parts in zip(*states))
    p = np.exp(logs - logsumexp(logs))
    drawn = np.random.default_rng(seed).choice(len(p), n, p=p / p.sum())
    x = ops.convert_to_tensor(states[drawn])
    if is_visible:
        return x
    return harmonium.visible.sample(harmonium.transposed().fields(x), streams(seed, 1)[0])


def annealed_partition(
    harmonium: Harmonium,
    betas: Tensor | None = None,
    chains: int = 100,
    base_bias: Tensor | None = None,
    seed: int = 0,
) -> AnnealedPartition:
    """Annealed importance sampling of log Z of an RBM, hidden units summed out.

    Chains start at the RBM without maps, whose visible biases are `base_bias`. They pass through
    `harmonium.tempered(beta)` with one Gibbs step at each beta. The estimate of Z is unbiased,
    so the estimate of log Z is low on average.

    Args:
        harmonium: `Harmonium`.
        betas: Array, rising from zero to one; `None`: `annealing_schedule()`.
        chains: int, N, at least two.
        base_bias: Tensor of the visible shape; `None`: the visible biases. For binary units the
            log-odds of the data's means are best.
        seed: int.

    Returns:
        Named tuple in nats: `log_z`, its standard `error`, and `log_weights` (N,), the estimate
        of each chain.

    Raises:
        ValueError: If `betas` does not rise from zero to one, or `chains` is below two.

    Example:

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


def reverse_annealed_partition(
    harmonium: Harmonium,
    x: Tensor,
    betas: Tensor | None = None,
    base_bias: Tensor | None = None,
    seed: int = 0,
) -> AnnealedPartition:
    """Reverse annealed importance sampling of log Z, from samples back to the RBM without maps.

    If x are exact samples, the estimate of log Z is high on average. Together with
    `annealed_partition` it gives bidirectional bounds.

    Args:
        harmonium: `Harmonium`.
        x: Tensor (N, ...), samples of the visible units, N at least two.
        betas, base_bias, seed: See `annealed_partition`.

    Returns:
        Named tuple as of `annealed_partition`.

    Raises:
        ValueError: If `betas` does not rise from zero to one, or there are too few samples.

    Example:

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


def log_likelihood(harmonium: Harmonium, x: Tensor, log_z: float) -> tuple[float, float]:
    """Return the mean log p(x) over images in nats, and its standard error.

    Args:
        harmonium: `Harmonium`.
        x: Array (B, ...), states of the visible units.
        log_z: float, nats.

    Returns:
        float mean and float standard error; the error is NaN for a single image.

    Example:

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
    """Return whether the visible side is enumerated, and blocks of states with their -F."""
    sides = [
        side
        for side in (harmonium, harmonium.transposed())
        if isinstance(plain_units(side.visible), BinaryUnits)
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
    """Return log weights of chains that start at the first beta."""

    # F_b is not linear in b, so the increment is F_b - F_next. Pre-activations do not depend on
    # b, so they are carried as `values` from step to step.
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
    """Return log Z of the RBM without maps."""
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


def _neurons(side):
    return int(np.prod(side.maps.input_shape))


def _numbers(tensor):
    return ops.convert_to_numpy(tensor).astype("float64")
