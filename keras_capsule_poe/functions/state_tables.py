"""All states of small layers of binary units at once, and the moments of their laws.

With Gaussian visible units summed out, a layer of E binary units is a Boltzmann machine,

    -F(h) = h.field + h^T gram h/2,     gram = W W^T

Half of the units against the other half: a table of 2^(E/2) by 2^(E/2) sums, so that a capsule of
16 neurons costs 65,536 additions and no product of that many states with a matrix.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_capsule_poe.functions.checks import whole_number
from keras_capsule_poe.functions.norms import at_least_float32

MOST_NEURONS = 20


class StateMoments(NamedTuple):
    """What the laws of G layers of E binary units say.

    `log_z` (G,): log of the sum of exp(-F(h)), nats; `second` (G, E, E): E[h h^T], whose diagonal
    is `mean` (G, E), E[h].
    """

    log_z: Any
    mean: Any
    second: Any


def binary_states(indices, neurons):
    """The states of binary neurons by their numbers, the first neuron the lowest bit.

    Args:
        indices: Integer tensor (N,).
        neurons: int, E.

    Returns:
        Tensor (N, E) of zeros and ones, int32.

    Examples:

    >>> ops.convert_to_numpy(binary_states(ops.convert_to_tensor([0, 1, 6]), 3)).tolist()
    [[0, 0, 0], [1, 0, 0], [0, 1, 1]]
    """
    powers = ops.cast(2, "int32") ** ops.arange(neurons, dtype="int32")
    return ops.floor_divide(ops.cast(indices, "int32")[:, None], powers) % 2


def state_table(gram, field):
    """-F(h) of all states of G layers of E binary units.

    Args:
        gram: Tensor (G, E, E), symmetric.
        field: Tensor (G, E).

    Returns:
        Tensor (G, 2^U, 2^L), nats, L = E // 2: a row for each state of the last U = E - L units,
        a column for each of the first L; flat, in the order of `binary_states`.

    Raises:
        ValueError: If there are more than 20 units.

    Examples:

    >>> table = state_table(ops.ones((1, 2, 2)), ops.zeros((1, 2)))
    >>> ops.convert_to_numpy(table).tolist()
    [[[0.0, 0.5], [0.5, 2.0]]]
    """
    gram, field = at_least_float32(gram), at_least_float32(field)
    units = whole_number("units", field.shape[-1])
    if units > MOST_NEURONS:
        raise ValueError(f"At most {MOST_NEURONS} units are enumerated. Received: {units}")
    few = units // 2
    first, last = _halves(units, gram.dtype)
    couplings = ops.einsum("ue,gef,lf->gul", last, gram[:, few:, :few], first)
    return (
        _alone(last, gram[:, few:, few:], field[:, few:])[:, :, None]
        + _alone(first, gram[:, :few, :few], field[:, :few])[:, None, :]
        + couplings
    )


def state_moments(table):
    """Moments of the laws P(h) that are proportional to exp of a `state_table`.

    Args:
        table: Tensor (G, 2^U, 2^L).

    Returns:
        `StateMoments`.

    Examples:

    >>> moments = state_moments(ops.zeros((1, 2, 2)))
    >>> ops.convert_to_numpy(moments.second).tolist()
    [[[0.5, 0.25], [0.25, 0.5]]]
    """
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
    """States (2^L, L) of the first units, and (2^U, U) of the last."""
    few = units // 2
    sizes = few, units - few
    return [ops.cast(binary_states(ops.arange(2**size), size), dtype) for size in sizes]


def _alone(states, gram, field):
    """-F of states of one half, the other at zero, (G, states)."""
    quadratic = ops.sum(ops.einsum("se,gef->gsf", states, gram) * states, axis=-1)
    return ops.einsum("se,ge->gs", states, field) + quadratic / 2
