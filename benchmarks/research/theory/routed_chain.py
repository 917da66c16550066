"""Gibbs sampling with coupling coefficients routed from v, corrected by Metropolis-Hastings."""

import keras
from keras import ops

from keras_capsule_poe.core.harmonium import Harmonium, gibbs_step
from keras_capsule_poe.core.numerics import streams


def corrected_step(route, harmonium, x, coefficients, seed):
    """One corrected step; return x, its coefficients, and a bool (B,) for chains that moved."""
    first, second = streams(seed, 2)
    here = _with(harmonium, coefficients)
    proposed, y = gibbs_step(here, x, first)
    c = route(proposed)
    there = _with(harmonium, c)
    # With routed c, v given h does not factorise: q(v | h; c) is only a proposal.
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
    """Return -E(x, y) (B,)."""
    total = ops.sum(y * harmonium.fields(x), axis=(1, 2))
    return total - ops.sum(harmonium.visible.energy(x, harmonium.visible_bias), axis=-1)


def _log_visible(harmonium, x, y):
    """Return log q(x | y) (B,)."""
    units, z = harmonium.visible, harmonium.transposed().fields(y)
    return ops.sum(units.free_energy(z) - units.energy(x, z), axis=-1)
