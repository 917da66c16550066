"""All states of small binary layers at once: -F(h) = h.field + h^T gram h/2, gram = W W^T."""

from typing import Any, NamedTuple

from keras import ops

from keras_capsule_poe.functions.checks import whole_number
from keras_capsule_poe.functions.norms import at_least_float32

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
