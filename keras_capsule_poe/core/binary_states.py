"""All states of small binary layers at once: -F(h) = h.field + h^T gram h/2, gram = W W^T."""

from typing import Any, NamedTuple

from keras import ops

from keras_capsule_poe.core.harmonium import offset_of, plain_units
from keras_capsule_poe.core.numerics import at_least_float32, whole_number
from keras_capsule_poe.core.randomness import draw_index, streams
from keras_capsule_poe.core.units import BinaryUnits, GaussianUnits

MOST_NEURONS = 20


class StateMoments(NamedTuple):
    """log Z (G,) in nats, E[h] (G, E) and E[h h^T] (G, E, E) of G binary layers."""

    log_z: Any
    mean: Any
    second: Any


def binary_states(indices, neurons):
    """Return the states (N, E) with the given indices (N,); the first neuron is the lowest bit."""
    powers = ops.cast(2, "int32") ** ops.arange(neurons, dtype="int32")
    return ops.floor_divide(ops.cast(indices, "int32")[:, None], powers) % 2


def state_table(gram, field):
    """Return -F(h) (G, 2^U, 2^L) of all states; rows are the last U units, columns the first L."""
    gram, field = at_least_float32(gram), at_least_float32(field)
    units = whole_number("units", field.shape[-1])
    if units > MOST_NEURONS:
        raise ValueError(f"At most {MOST_NEURONS} units are enumerated. Received: {units}")
    few = units // 2
    first, last = _halves(units, gram.dtype)
    # Sum two halves instead of multiplying all 2^E states with a matrix.
    couplings = ops.einsum("ue,gef,lf->gul", last, gram[:, few:, :few], first)
    return (
        _alone(last, gram[:, few:, few:], field[:, few:])[:, :, None]
        + _alone(first, gram[:, :few, :few], field[:, :few])[:, None, :]
        + couplings
    )


def state_moments(table):
    """Return the `StateMoments` of the distributions exp(table), table (G, 2^U, 2^L)."""
    units = (table.shape[1] * table.shape[2]).bit_length() - 1
    first, last = _halves(units, table.dtype)
    log_z = ops.logsumexp(table, axis=(1, 2))
    p = ops.exp(table - log_z[:, None, None])
    across = ops.einsum("gul,ue,lf->gef", p, last, first)
    lower = ops.einsum("gl,le,lf->gef", ops.sum(p, axis=1), first, first)
    upper = ops.einsum("gu,ue,uf->gef", ops.sum(p, axis=2), last, last)
    above = ops.concatenate([lower, ops.swapaxes(across, 1, 2)], axis=2)
    second = ops.concatenate([above, ops.concatenate([across, upper], axis=2)], axis=1)
    return StateMoments(log_z, ops.diagonal(second, axis1=1, axis2=2), second)


def _halves(units, dtype):
    """Return the states (2^L, L) of the first units, and (2^U, U) of the last."""
    few = units // 2
    sizes = few, units - few
    return [ops.cast(binary_states(ops.arange(2**size), size), dtype) for size in sizes]


def _alone(states, gram, field):
    """Return -F (G, states) of one half's states, with the other half at zero."""
    quadratic = ops.sum(ops.einsum("se,gef->gsf", states, gram) * states, axis=-1)
    return ops.einsum("se,ge->gs", states, field) + quadratic / 2


_BLOCK = 4096


def state_log_weights(harmonium):
    """Return -F(h) `(2^E,)` of all states of a small binary hidden layer, v summed out."""
    maps, hidden = harmonium.maps, plain_units(harmonium.hidden)
    neurons = maps.output_shape[0]
    if len(maps.output_shape) != 1 or neurons > MOST_NEURONS or not isinstance(hidden, BinaryUnits):
        raise ValueError(
            f"At most {MOST_NEURONS} binary neurons are enumerated, of a flat layer. Received: "
            f"hidden units {maps.output_shape}, {type(hidden).__name__}"
        )
    dtype = maps.kernel.dtype
    side, lam = harmonium.transposed(), offset_of(harmonium.hidden, dtype)
    if isinstance(plain_units(harmonium.visible), GaussianUnits):
        b, mu = harmonium.visible_bias, offset_of(harmonium.visible, dtype)
        gram = ops.matmul(maps.kernel, ops.transpose(maps.kernel))
        field = harmonium.hidden_bias + ops.matmul(maps.kernel, b - mu)
        # Expand y^T gram y/2 with y = h - lambda in powers of h.
        lam = ops.broadcast_to(lam, (neurons,))
        bent = ops.matmul(gram, lam)
        table = state_table(gram[None], (field - bent)[None])
        return (
            ops.reshape(table, (-1,))
            + ops.sum(b * (b / 2 - mu))
            + ops.sum(lam * (bent / 2 - field))
        )
    logs = []
    for first in range(0, 2**neurons, _BLOCK):
        block = ops.arange(first, min(first + _BLOCK, 2**neurons))
        logs.append(-side.free_energy(ops.cast(binary_states(block, neurons), dtype) - lam))
    return ops.concatenate(logs)


def draw_states(log_weights, groups, seed):
    """Draw binary states (N, E) exactly; row g of log weights `(G, 2^E)` defines P_g."""
    log_weights = at_least_float32(log_weights)
    laws, states = log_weights.shape
    neurons = whole_number("neurons", states.bit_length() - 1)
    if states != 2**neurons or neurons > MOST_NEURONS:
        raise ValueError(
            f"`log_weights` must have 2^E columns, E of 1 to {MOST_NEURONS}. "
            f"Received: shape {tuple(log_weights.shape)}"
        )
    # Draw the upper neurons first, then the lower ones given them: rows are short, not 2^E.
    few = 2 ** (neurons // 2)
    table = ops.reshape(log_weights, (laws, states // few, few))
    first, second = streams(seed, 2)
    upper = draw_index(ops.take(ops.logsumexp(table, axis=-1), groups, axis=0), first)
    rows = ops.cast(groups, "int32") * (states // few) + upper
    lower = draw_index(ops.take(ops.reshape(table, (-1, few)), rows, axis=0), second)
    return ops.cast(binary_states(few * upper + lower, neurons), log_weights.dtype)
