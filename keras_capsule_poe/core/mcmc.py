"""MCMC transitions that leave P_b(x) = P_0(x) w(x)^b / Z_b invariant.

They map (states, log w, b, seed) to (states, log w), as `annealed_importance` requires. They
need neither a step size nor a derivative of w.
"""

import math

import keras
from keras import ops

from keras_capsule_poe.core.harmonium import offset_of, plain_units
from keras_capsule_poe.core.numerics import whole_number
from keras_capsule_poe.core.randomness import StatelessSeed, split, streams
from keras_capsule_poe.core.units import GaussianUnits

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


def hidden_chain(harmonium, y, steps, seed):
    """Run Gibbs steps on hidden states y (B, E), like `gibbs_chain` from the hidden side."""
    visible, kernel = plain_units(harmonium.visible), harmonium.maps.kernel
    if len(kernel.shape) != 2 or not isinstance(visible, GaussianUnits):
        raise ValueError(
            "`harmonium` must have DenseMaps and GaussianUnits as its visible side. Received: "
            f"{type(harmonium.maps).__name__}, {type(visible).__name__}"
        )
    away = harmonium.visible_bias - offset_of(harmonium.visible, kernel.dtype)
    field = harmonium.hidden_bias + ops.matmul(kernel, away)
    gram = ops.matmul(kernel, ops.transpose(kernel))
    # Zero eigenvalues (more hidden than visible neurons) may round to negative ones.
    variances, axes = ops.linalg.eigh(gram)
    root = ops.sqrt(ops.maximum(variances, 0))[:, None] * ops.transpose(axes)
    noises, draws = streams(seed, 2)

    def step(i, y):
        noise = keras.random.normal(ops.shape(y), dtype=gram.dtype, seed=noises.later(i))
        z = field + ops.matmul(y, gram) + ops.matmul(noise, root)
        return harmonium.hidden.sample(z, draws.later(i))

    return ops.fori_loop(0, steps, step, ops.cast(y, gram.dtype))
