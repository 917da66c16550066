"""Annealed importance sampling: log Z of P(x) = P_0(x) w(x)/Z, for any weight and any kernel.

P_b is proportional to P_0 w^b, with b from zero to one and back. A log weight takes states to
log w, (N,). A kernel takes (states, log w of them, b, seed) to (states, log w of them) and leaves
P_b as it is. States are a tensor or a structure of tensors whose first axis is the chain. On paths
between P_0 and P that are no powers of one weight, a function says what a step of b weighs.
"""

import math
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree

from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.functions.randomness import StatelessSeed, split, streams


class Annealed(NamedTuple):
    """Where annealed chains have come to.

    `log_weights`: log importance weights of the chains, (N,), nats.
    `states`: their states at the last b, which count by these weights.
    `values`: log w of these states, (N,), nats; on other paths what stands for them.
    """

    log_weights: Any
    states: Any
    values: Any


class Estimate(NamedTuple):
    """A value and its standard error, nats."""

    value: float
    error: float


class Bracket(NamedTuple):
    """log Z from both sides: `forward` is low on average, `reverse` high; standard errors, nats."""

    forward: float
    forward_error: float
    reverse: float
    reverse_error: float

    @property
    def width(self):
        """How far the two sides are apart, reverse less forward."""
        return self.reverse - self.forward


def annealing_schedule(*pieces):
    """Inverse temperatures from zero to one.

    Args:
        *pieces: (beta, number) each: so many equal steps up to beta. Default: the 14,500 steps
            of Salakhutdinov & Murray, 500 to 0.5, 4,000 to 0.9 and 10,000 to 1.

    Returns:
        float64 array, one longer than there are steps.

    Examples:

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
    """Log weight of a step of b where P_b is P_0 w^b: the step times log w.

    Args:
        states: States of the chains.
        values: Tensor (N,), log w of them.
        before, after: Scalar tensors, b.

    Returns:
        Tensor (N,), nats.

    Examples:

    >>> linear_gain(None, np.ones(2), 0.25, 0.75).tolist()
    [0.5, 0.5]
    """
    return (after - before) * values


def annealed_importance(log_weight, kernel, start, betas, seed, gain=linear_gain):
    """Carries chains from P_b of the first b to that of the last, by importance weights.

    The mean of exp(`log_weights`) is Z of the last b over Z of the first, without bias, if the
    chains start as independent draws of the first: from b = 0 that is log Z, and from b = 1
    down to 0 it is -log Z. One step is plain importance sampling. Both functions become a graph
    that is used again for them: what they refer to should not change.

    Args:
        log_weight: Function of states to log w, (N,).
        kernel: Function of (states, values, b, seed) to (states, values) that leaves P_b as it
            is, see `functions.kernels`; `values` are the states' log w.
        start: States of N chains, drawn from P_b of the first b.
        betas: Array of two or more b, rising or falling, of [0, 1].
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.
        gain: Function of (states, values, b, next b) to the log of P_next/P_b of these states,
            unnormalised, (N,). Where it is not `linear_gain`, `values` are whatever `log_weight`
            and `kernel` make of the states for it.

    Returns:
        `Annealed`.

    Raises:
        ValueError: If `betas` are not as they must be.

    Examples:

    >>> from keras_capsule_poe.functions import UniformBall, block_resampling
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
    # The same functions again, another seed or another direction: the same graph.
    return Annealed(*_compiled(log_weight, kernel, gain)(start, betas, seeds))


# A graph keeps what its functions refer to: no more of them than there and back need.
@lru_cache(maxsize=2)
def _compiled(log_weight, kernel, gain):
    return compiled(partial(anneal, log_weight, kernel, gain))


def anneal(log_weight, kernel, gain, start, betas, seeds):
    """The loop of `annealed_importance`, of tensors only.

    Args:
        log_weight, kernel, gain, start: See `annealed_importance`.
        betas: Tensor (K + 1,).
        seeds: Integer tensor (K, 2), see `functions.randomness.split`.

    Returns:
        Tuple: log weights, states and their values.
    """
    values = log_weight(start)
    first = tree.flatten(values)[0]
    betas = ops.cast(betas, first.dtype)

    def body(k, states, values, total):
        # The weight is that of the state before it moves.
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
    """log of the mean of exp(log_weights), and its standard error by the delta method.

    Args:
        log_weights: Array (N,), N two or more, nats.

    Returns:
        `Estimate`.

    Raises:
        ValueError: If there are fewer than two.

    Examples:

    >>> log_mean(np.zeros(3)) == (0, 0)
    True
    """
    log_weights = np.asarray(ops.convert_to_numpy(log_weights), "float64")
    if log_weights.ndim != 1 or len(log_weights) < 2:
        raise ValueError(
            "`log_weights` must be of two chains or more: one has no spread. "
            f"Received: shape {log_weights.shape}"
        )
    largest = log_weights.max()
    if largest == -np.inf:
        # Of nothing but zeros.
        return Estimate(-np.inf, 0.0)
    weights = np.exp(log_weights - largest)
    mean = weights.mean()
    # A small error of log x is the error of x over x.
    error = weights.std(ddof=1) / (math.sqrt(len(weights)) * mean)
    return Estimate(float(largest + np.log(mean)), float(error))


def log_partition_bracket(log_weight, kernel, start, betas, seed, ends=None):
    """log Z from below and from above: forward and reverse annealed importance sampling.

    By Jensen's inequality the forward estimate is low on average and the reverse one high, if
    the reverse chains start at exact draws of P_1. Without such draws they start where the
    forward chains ended, drawn anew by their weights: then the upper side is trusted only as
    far as these ends are, and a width near zero says that neither side has far to go.

    Args:
        log_weight, kernel, start, seed: See `annealed_importance`.
        betas: Array, rising from zero to one.
        ends: States drawn from P_1, or None.

    Returns:
        `Bracket`.

    Raises:
        ValueError: If `betas` do not rise from zero to one.

    Examples:

    >>> from keras_capsule_poe.functions import UniformBall, block_resampling
    >>> base, log_weight = UniformBall(6, 4), lambda x: ops.sum(x, axis=(1, 2))
    >>> kernel = block_resampling(base, log_weight, blocks=2)
    >>> found = log_partition_bracket(
    ...     log_weight, kernel, base.draw(200, seed=0), np.linspace(0, 1, 9), seed=1)
    >>> abs(found.width) < 0.5
    True

    Reference:

    - [Burda et al., 2015](https://arxiv.org/abs/1412.8566), reverse annealing
    - [Grosse et al., 2015](https://arxiv.org/abs/1511.02543), bracketing from both sides
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
    return Bracket(*low, -high.value, high.error)


def _resampled(log_weights, seed):
    """Indices (N,) of chains, each about as often as its weight says: systematic resampling."""
    log_weights = np.asarray(ops.convert_to_numpy(log_weights), "float64")
    heights = np.cumsum(np.exp(log_weights - log_weights.max()))
    offset = np.random.default_rng(int(seed)).uniform()
    marks = (np.arange(len(heights)) + offset) / len(heights) * heights[-1]
    return np.minimum(np.searchsorted(heights, marks), len(heights) - 1)
