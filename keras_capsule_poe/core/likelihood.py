"""Likelihoods: annealed importance sampling, and the partition function of an RBM.

A log weight maps states to log w (N,). An MCMC transition maps (states, log w, b, seed) to
(states, log w) and leaves P_b invariant. States are tensors whose first axis is the chain.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree
from scipy.special import logsumexp

from keras_capsule_poe._types import Seed, Tensor
from keras_capsule_poe.core.enumeration import MOST_NEURONS
from keras_capsule_poe.core.harmonium import Harmonium, gibbs_step
from keras_capsule_poe.core.numerics import (
    StatelessSeed,
    compiled,
    split,
    streams,
    whole_number,
)
from keras_capsule_poe.core.units import BinaryUnits, plain_units


class Annealed(NamedTuple):
    """Log importance weights (N,) of annealed chains, their last states, and log w of these."""

    log_weights: Any
    states: Any
    values: Any


class Estimate(NamedTuple):
    """An estimate in nats and its standard error."""

    value: float
    error: float


class Bracket(NamedTuple):
    """Bidirectional bounds on log Z, low and high on average, with standard errors (nats)."""

    forward: float
    forward_error: float
    reverse: float
    reverse_error: float

    @property
    def width(self):
        """Gap between the two bounds, reverse minus forward, in nats."""
        return self.reverse - self.forward


def annealing_schedule(*pieces: tuple[float, int]) -> np.ndarray:
    """Return inverse temperatures from zero to one.

    Args:
        *pieces: Pairs (beta, number): `number` equal steps up to `beta`. Default:
            `(0.5, 500), (0.9, 4000), (1.0, 10000)`, as in the reference.

    Returns:
        float64 array, one longer than the number of steps.

    Example:

    >>> annealing_schedule((0.5, 2), (1.0, 1)).tolist(), len(annealing_schedule())
    ([0.0, 0.25, 0.5, 1.0], 14501)

    Reference:

    - [Salakhutdinov & Murray, 2008](https://doi.org/10.1145/1390156.1390266), section 4
    """
    pieces = pieces or ((0.5, 500), (0.9, 4000), (1.0, 10_000))
    betas = [np.zeros(1)]
    for beta, number in pieces:
        betas.append(np.linspace(betas[-1][-1], beta, number + 1)[1:])
    return np.concatenate(betas)


def linear_gain(states, values, before, after):
    """Return the log-weight increment (N,) of a step along the path P_0 w^b."""
    return (after - before) * values


def annealed_importance(
    log_weight: Callable[..., Any],
    kernel: Callable[..., Any],
    start: Tensor,
    betas: Tensor,
    seed: Seed,
    gain: Callable[..., Any] = linear_gain,
) -> Annealed:
    """Annealed importance sampling from the first P_b to the last.

    `mean(exp(log_weights))` is an unbiased estimate of Z of the last b over Z of the first. The
    chains must start at independent draws from the first P_b. The log of the mean estimates log Z
    if b rises from zero to one, and -log Z if b falls from one to zero.

    The functions are compiled once and cached, so they must not depend on values that change.

    Args:
        log_weight: Function that maps states to log w (N,), nats.
        kernel: MCMC transition that leaves P_b invariant. It maps (states, values, b, seed) to
            (states, values), where values are log w of the states.
        start: Tensor, or structure of tensors, with N states drawn from the first P_b.
        betas: Array of two or more b in `[0, 1]`, strictly rising or falling.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.
        gain: Function that maps (states, values, b, next b) to the log-weight increment (N,).
            The default is right for P_b = P_0 w^b. For other paths pass your own. `values` may
            then be any tensors that `log_weight` and `kernel` return.

    Returns:
        Named tuple: `log_weights` (N,), `states` at the last b, and their `values`.

    Raises:
        ValueError: If `betas` has another shape, order or range.

    Example:

    >>> from keras_capsule_poe.functions import UniformBall
    >>> from keras_capsule_poe.core.mcmc import block_resampling
    >>> base, log_weight = UniformBall(6, 4), lambda x: ops.sum(x, axis=(1, 2))
    >>> kernel = block_resampling(base, log_weight, blocks=2)
    >>> run = annealed_importance(log_weight, kernel, base.draw(9, seed=0), [0, 0.5, 1], seed=1)
    >>> run.log_weights.shape, run.states.shape
    (TensorShape([9]), TensorShape([9, 6, 4]))

    Reference:

    - [Neal, 2001](https://arxiv.org/abs/physics/9803008)
    """
    betas = np.asarray(betas, "float64")
    steps = np.diff(betas) if betas.ndim == 1 else betas
    one_way = steps.size > 0 and (np.all(steps > 0) or np.all(steps < 0))
    if betas.ndim != 1 or not one_way or betas.min() < 0 or betas.max() > 1:
        raise ValueError(
            f"`betas` must be two or more numbers of [0, 1], rising or falling. Received: {betas}"
        )
    start = tree.map_structure(ops.convert_to_tensor, start)
    seeds, betas = split(seed, len(steps)), ops.convert_to_tensor(betas)
    return Annealed(*_compiled(log_weight, kernel, gain)(start, betas, seeds))


# A cached graph keeps its functions' tensors alive, so the cache is small.
@lru_cache(maxsize=2)
def _compiled(log_weight, kernel, gain):
    return compiled(partial(anneal, log_weight, kernel, gain))


def anneal(log_weight, kernel, gain, start, betas, seeds):
    """Run the loop of `annealed_importance` on tensors: betas `(K + 1,)`, seeds `(K, 2)`."""
    values = log_weight(start)
    first = tree.flatten(values)[0]
    betas = ops.cast(betas, first.dtype)

    def body(k, states, values, total):
        # AIS weighs a state before the transition moves it.
        total = total + gain(states, values, betas[k], betas[k + 1])
        seed = StatelessSeed(seeds[k, 0], seeds[k, 1])
        states, values = kernel(states, values, betas[k + 1], seed)
        return k + 1, states, values, total

    nothing = ops.zeros(ops.shape(first)[:1], first.dtype)
    begin = (ops.zeros((), "int32"), start, values, nothing)
    number = ops.shape(seeds)[0]
    _, states, values, total = ops.while_loop(lambda k, *_: k < number, body, begin)
    return total, states, values


def log_mean(log_weights):
    """Return the log of the mean of exp(log_weights) (N,), with its delta-method error."""
    log_weights = np.asarray(ops.convert_to_numpy(log_weights), "float64")
    if log_weights.ndim != 1 or len(log_weights) < 2:
        raise ValueError(
            "`log_weights` must be of two chains or more: one has no spread. "
            f"Received: shape {log_weights.shape}"
        )
    largest = log_weights.max()
    if largest == -np.inf:
        return Estimate(-np.inf, 0.0)
    weights = np.exp(log_weights - largest)
    mean = weights.mean()
    error = weights.std(ddof=1) / (math.sqrt(len(weights)) * mean)
    return Estimate(float(largest + np.log(mean)), float(error))


def log_partition_bracket(
    log_weight: Callable[..., Any],
    kernel: Callable[..., Any],
    start: Tensor,
    betas: Tensor,
    seed: Seed,
    ends: Tensor = None,
) -> Bracket:
    """Bidirectional bounds on log Z by forward and reverse annealed importance sampling.

    The forward estimate is low on average (Jensen's inequality). The reverse estimate is high on
    average if its chains start at exact draws from P_1. Without `ends` the reverse chains start
    at the forward chains' last states, resampled by weight. The upper bound is then only as good
    as these states.

    Args:
        log_weight, kernel, start, seed: See `annealed_importance`.
        betas: Array, rising from zero to one.
        ends: States drawn from P_1; `None`: resampled forward chains.

    Returns:
        Named tuple in nats: `forward`, `forward_error`, `reverse`, `reverse_error`; the property
        `width` is their gap.

    Raises:
        ValueError: If `betas` does not rise from zero to one.

    Example:

    >>> from keras_capsule_poe.functions import UniformBall
    >>> from keras_capsule_poe.core.mcmc import block_resampling
    >>> base, log_weight = UniformBall(6, 4), lambda x: ops.sum(x, axis=(1, 2))
    >>> kernel = block_resampling(base, log_weight, blocks=2)
    >>> found = log_partition_bracket(
    ...     log_weight, kernel, base.draw(200, seed=0), np.linspace(0, 1, 9), seed=1)
    >>> abs(found.width) < 0.5
    True

    Reference:

    - [Burda et al., 2015](https://arxiv.org/abs/1412.8566), reverse annealing
    - [Grosse et al., 2015](https://arxiv.org/abs/1511.02543), bidirectional bounds
    """
    betas = _schedule(betas)
    there, drawn, back = streams(seed, 3)
    forward = annealed_importance(log_weight, kernel, start, betas, there)
    if ends is None:
        chosen = _resampled(forward.log_weights, split(drawn, 1)[0, 0])
        ends = tree.map_structure(lambda state: ops.take(state, chosen, axis=0), forward.states)
    reverse = annealed_importance(log_weight, kernel, ends, betas[::-1], back)
    low, high = log_mean(forward.log_weights), log_mean(reverse.log_weights)
    return Bracket(low.value, low.error, -high.value, high.error)


def _resampled(log_weights, seed):
    """Return chain indices (N,), resampled systematically by weight."""
    log_weights = np.asarray(ops.convert_to_numpy(log_weights), "float64")
    heights = np.cumsum(np.exp(log_weights - log_weights.max()))
    offset = np.random.default_rng(int(seed)).uniform()
    marks = (np.arange(len(heights)) + offset) / len(heights) * heights[-1]
    return np.minimum(np.searchsorted(heights, marks), len(heights) - 1)


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
