"""Gibbs sampling of an energy whose coefficients are routed from v, with its correction.

Where E(v, h) = E(v, h; c(v)) and c is routed anew, v given h no longer factorises. A v drawn as if
it did, of q(v' | h; c(v)), is accepted with probability

    min(1, exp(-E(v', h; c') + log q(v | h; c') + E(v, h; c) - log q(v' | h; c))),  c' = c(v').

Without this step the chain's law is another than that of the energy: it is no sampler.
"""

import keras
from keras import ops

from keras_capsule_poe.functions.harmonium import Harmonium, gibbs_step
from keras_capsule_poe.functions.randomness import streams


def corrected_step(route, harmonium, x, coefficients, seed):
    """One step of the chain of an energy with routed coefficients, which leaves its law.

    Args:
        route: Function of x (B, I, D) to coefficients (B, I, J).
        harmonium: `Harmonium`, whose coefficients are not used.
        x: Tensor (B, I, D), what the visible units send.
        coefficients: Tensor (B, I, J), `route(x)`.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.

    Returns:
        Tensors x, its coefficients, and whether each chain has moved, (B,), bool.

    Examples:

    >>> from keras_capsule_poe.functions import EinsumMaps, Router, RoutingOptions
    >>> maps, x = EinsumMaps(ops.ones((6, 5, 3, 4))), ops.ones((2, 6, 4))
    >>> router = Router(maps, RoutingOptions())
    >>> routed = lambda x: router.route(x).coefficients
    >>> machine = Harmonium(maps, coefficients=routed(x))
    >>> corrected_step(routed, machine, x, routed(x), seed=0)[0].shape
    TensorShape([2, 6, 4])

    Reference:

    - [Hastings, 1970](https://doi.org/10.1093/biomet/57.1.97)
    """
    first, second = streams(seed, 2)
    here = _with(harmonium, coefficients)
    proposed, y = gibbs_step(here, x, first)
    c = route(proposed)
    there = _with(harmonium, c)
    log_odds = _log_joint(there, proposed, y) + _log_visible(there, x, y)
    log_odds = log_odds - _log_joint(here, x, y) - _log_visible(here, proposed, y)
    u = keras.random.uniform(ops.shape(log_odds), 1e-30, 1.0, dtype=log_odds.dtype, seed=second)
    has_moved = ops.log(u) < log_odds
    moved = has_moved[:, None, None]
    return ops.where(moved, proposed, x), ops.where(moved, c, coefficients), has_moved


def _with(harmonium, coefficients):
    return Harmonium(
        harmonium.maps,
        harmonium.hidden,
        harmonium.visible,
        harmonium.hidden_bias,
        harmonium.visible_bias,
        coefficients,
    )


def _log_joint(harmonium, x, y):
    """-E(x, y), (B,)."""
    total = ops.sum(y * harmonium.fields(x), axis=(1, 2))
    return total - ops.sum(harmonium.visible.energy(x, harmonium.visible_bias), axis=-1)


def _log_visible(harmonium, x, y):
    """log q(x | y), (B,)."""
    units, z = harmonium.visible, harmonium.transposed().fields(y)
    return ops.sum(units.free_energy(z) - units.energy(x, z), axis=-1)
