"""Exact draws from small layers of binary units, by enumeration of all states."""

from keras import ops

from keras_capsule_poe.functions.checks import whole_number
from keras_capsule_poe.functions.harmonium_units import offset_of, plain_units
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.randomness import draw_index, streams
from keras_capsule_poe.functions.state_tables import MOST_NEURONS, binary_states, state_table
from keras_capsule_poe.functions.units import BinaryUnits, GaussianUnits

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
