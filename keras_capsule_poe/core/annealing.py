"""Annealed importance sampling for P(x) = P_0(x) w(x)/Z along the path P_b = P_0 w^b / Z_b.

A log weight maps states to log w (N,). An MCMC transition maps (states, log w, b, seed) to
(states, log w) and leaves P_b invariant. States are tensors whose first axis is the chain.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree

from keras_capsule_poe._types import Seed, Tensor
from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.core.randomness import StatelessSeed, split, streams


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
    betas = np.asarray(betas, "float64")
    if betas.ndim != 1 or len(betas) < 2 or (betas[0], betas[-1]) != (0, 1):
        raise ValueError(f"`betas` must rise from zero to one. Received: betas={betas}")
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
