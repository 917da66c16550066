"""MCMC transitions that leave P_b(x) = P_0(x) w(x)^b / Z_b invariant.

They map (states, log w, b, seed) to (states, log w), as `annealed_importance` requires. They
need neither a step size nor a derivative of w.
"""

import math

import keras
from keras import ops

from keras_capsule_poe.functions.checks import whole_number
from keras_capsule_poe.functions.randomness import StatelessSeed, split, streams

# The arc roughly halves each time, so it is then narrower than rounding.
_MOST_SHRINKS = 100


def block_resampling(base, log_weight, blocks):
    """Metropolis transition that redraws `blocks` random input capsules from the base."""
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
        # Redraw the capsules whose random rank is below `blocks`, the same in all chains.
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
    """Return log (w'/w)^b, the Metropolis ratio of a proposal that leaves P_0 invariant."""
    return beta * (proposed - values)


def elliptical_slice(base, log_weight):
    """Elliptical slice sampling (Murray et al., 2010) for a zero-mean Gaussian base."""
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
    """Return a transition that applies another one a number of times."""
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
    """Return log u (N,) with u uniform on `[0, 1)`."""
    return ops.log(keras.random.uniform(ops.shape(values), dtype=values.dtype, seed=seed))


def _like(chains, x):
    """Reshape numbers per chain (N,) so that they multiply states."""
    return ops.reshape(chains, (-1,) + (1,) * (len(x.shape) - 1))


def _chosen(accepted, proposal, x):
    return ops.where(_like(accepted, x), proposal, x)
