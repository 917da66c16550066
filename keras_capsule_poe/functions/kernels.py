"""Markov kernels that leave P_b(x), proportional to P_0(x) w(x)^b, exactly as it is.

Each is made of a base measure P_0 and a log weight log w(x), and takes (states, values, b, seed)
to (states, values), where `values` are the states' log w: what `annealed_importance` asks for.
Neither has a step size, and neither needs a derivative of w.
"""

import math

import keras
from keras import ops

from keras_capsule_poe.functions.checks import whole_number
from keras_capsule_poe.functions.randomness import StatelessSeed, split, streams

# The arc halves about, each time: after so many it is no wider than rounding.
_MOST_SHRINKS = 100


def block_resampling(base, log_weight, blocks):
    """Draws some input capsules anew from the base, and accepts by min(1, (w'/w)^b).

    The proposal leaves P_0 as it is, which is why only the weights are left in the acceptance.
    All that it asks of w is its value: right for fixed routing coefficients, and for coefficients
    that are routed from x, w(x) = prod_j (1 + |z_j(x; c(x))|^2).

    Args:
        base: Base measure with independent input capsules, see `functions.base_measures`.
        log_weight: Function of x (N, I, D) to log w, (N,).
        blocks: int, m, how many input capsules to draw anew, at most I. The same ones in all
            chains, chosen anew each time.

    Returns:
        Kernel, a function of (x, values, b, seed) to (x, values).

    Raises:
        ValueError: If `blocks` is no number of input capsules, or those of the base depend on
            each other.

    Examples:

    >>> from keras_capsule_poe.functions import UniformBall
    >>> base, log_weight = UniformBall(6, 4), lambda x: ops.sum(x, axis=(1, 2))
    >>> x = base.draw(5, seed=0)
    >>> x, values = block_resampling(base, log_weight, blocks=2)(x, log_weight(x), 1.0, seed=1)
    >>> x.shape, values.shape
    (TensorShape([5, 6, 4]), TensorShape([5]))

    Reference:

    - [Metropolis et al., 1953](https://doi.org/10.1063/1.1699114)
    """
    if not hasattr(base, "draw_capsules"):
        raise ValueError(
            "`base` must have independent input capsules: use elliptical_slice. "
            f"Received: base={base!r}"
        )
    if whole_number("blocks", blocks) > base.inputs:
        raise ValueError(
            f"`blocks` must be at most {base.inputs}, the input capsules. Received: blocks={blocks}"
        )

    def step(x, values, beta, seed):
        which, fresh, accept = streams(seed, 3)
        # The ranks of a random order; those below m are drawn anew.
        rank = ops.argsort(keras.random.uniform((base.inputs,), seed=which))
        drawn = base.draw_capsules(ops.shape(x)[0], blocks, fresh, x.dtype)
        drawn = ops.take(drawn, ops.minimum(rank, blocks - 1), axis=1)
        proposal = ops.where((rank < blocks)[None, :, None], drawn, x)
        proposed = log_weight(proposal)
        bound = _log_uniform(values, accept)
        accepted = bound < log_acceptance(proposed, values, beta)
        return _chosen(accepted, proposal, x), ops.where(accepted, proposed, values)

    return step


def log_acceptance(proposed, values, beta):
    """log (w'/w)^b of a proposal that leaves the base as it is."""
    return beta * (proposed - values)


def elliptical_slice(base, log_weight):
    """Elliptical slice sampling, for a base that is a Gaussian of mean zero.

    Each state moves on the ellipse through it and a fresh draw of the base, to a point drawn
    uniformly from where w^b is above a random height. It always moves. All chains are evaluated
    until the last one has moved, a few times what a single one needs.

    Args:
        base: `CentredGaussian`, or whatever else draws from a Gaussian of mean zero.
        log_weight: Function of states to log w, (N,).

    Returns:
        Kernel, a function of (states, values, b, seed) to (states, values).

    Raises:
        ValueError: If the base is known not to be Gaussian. `SquashedGaussian` is one before
            the squash: sample its `latent`, with the log weight of `squash` of it.

    Examples:

    >>> from keras_capsule_poe.functions import CentredGaussian
    >>> base, log_weight = CentredGaussian(np.ones((6, 4, 2))), lambda x: ops.sum(x, axis=(1, 2))
    >>> x = base.draw(5, seed=0)
    >>> x, values = elliptical_slice(base, log_weight)(x, log_weight(x), 1.0, seed=1)
    >>> x.shape, values.shape
    (TensorShape([5, 6, 4]), TensorShape([5]))

    Reference:

    - [Murray et al., 2010](https://arxiv.org/abs/1001.0175)
    """
    if not getattr(base, "is_gaussian", True):
        raise ValueError(
            "`base` must be a Gaussian of mean zero, or the `latent` of a squashed one. "
            f"Received: base={base!r}"
        )

    def step(x, values, beta, seed):
        fresh, height, angle = streams(seed, 3)
        other = base.draw(ops.shape(x)[0], fresh, x.dtype)
        bound = beta * values + _log_uniform(values, height)

        def angles(count):
            pair = angle.pair
            counted = StatelessSeed(pair[0], pair[1] + ops.cast(count, pair.dtype))
            return keras.random.uniform(ops.shape(values), dtype=values.dtype, seed=counted)

        first = 2 * math.pi * angles(0)

        def body(count, theta, low, high, now, at, done):
            turned = [_like(f(theta), x) for f in (ops.cos, ops.sin)]
            proposal = turned[0] * x + turned[1] * other
            proposed = log_weight(proposal)
            accepted = ops.logical_and(ops.logical_not(done), beta * proposed >= bound)
            now, at = _chosen(accepted, proposal, now), ops.where(accepted, proposed, at)
            low, high = ops.where(theta < 0, theta, low), ops.where(theta < 0, high, theta)
            theta = low + (high - low) * angles(count + 1)
            return count + 1, theta, low, high, now, at, ops.logical_or(done, accepted)

        def unfinished(count, *rest):
            return ops.logical_and(count < _MOST_SHRINKS, ops.logical_not(ops.all(rest[-1])))

        nowhere = ops.zeros_like(values) > 0
        begin = (ops.zeros((), "int32"), first, first - 2 * math.pi, first, x, values, nowhere)
        *_, now, at, _ = ops.while_loop(unfinished, body, begin)
        return now, at

    return step


def repeated(kernel, times):
    """A kernel, so many times over.

    Args:
        kernel: Kernel, a function of (states, values, b, seed) to (states, values).
        times: int.

    Returns:
        Kernel.

    Examples:

    >>> twice = repeated(lambda x, values, beta, seed: (x + 1, values), times=2)
    >>> [float(part) for part in twice(ops.zeros(()), ops.zeros(()), 1.0, seed=0)]
    [2.0, 0.0]
    """
    times = whole_number("times", times)

    def step(x, values, beta, seed):
        seeds = split(seed, times)

        def body(k, x, values):
            x, values = kernel(x, values, beta, StatelessSeed(seeds[k, 0], seeds[k, 1]))
            return k + 1, x, values

        begin = (ops.zeros((), "int32"), x, values)
        return ops.while_loop(lambda k, *_: k < times, body, begin)[1:]

    return step


def _log_uniform(values, seed):
    """log u of u uniform on [0, 1), one for each chain."""
    return ops.log(keras.random.uniform(ops.shape(values), dtype=values.dtype, seed=seed))


def _like(chains, x):
    """Numbers per chain, (N,), in a shape that multiplies states."""
    return ops.reshape(chains, (-1,) + (1,) * (len(x.shape) - 1))


def _chosen(accepted, proposal, x):
    return ops.where(_like(accepted, x), proposal, x)
