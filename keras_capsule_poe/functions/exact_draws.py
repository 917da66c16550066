"""Exact draws of a small layer of binary units: all of its states enumerated.

A capsule of 16 neurons has 65,536 states. With the visible units summed out

    P(h) is proportional to exp(-F(h)),    -F(h) = y.(a + W (b - mu)) + |W^T y|^2/2 + constant

for Gaussian visible units, where y = h - lambda is what the capsule sends, so that an E x E
matrix is all that it takes, see `state_tables`. For others each state goes down the maps once.
"""

from keras import ops

from keras_capsule_poe.functions.checks import whole_number
from keras_capsule_poe.functions.harmonium_units import offset_of, plain_units
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.randomness import draw_index, streams
from keras_capsule_poe.functions.state_tables import MOST_NEURONS, binary_states, state_table
from keras_capsule_poe.functions.units import BinaryUnits, GaussianUnits

_BLOCK = 4096


def state_log_weights(harmonium):
    """-F(h) of every state of the hidden layer, the visible one summed out.

    Args:
        harmonium: `Harmonium` with `DenseMaps` and at most 20 hidden neurons, binary.

    Returns:
        Tensor (2^E,), nats, in the order of `binary_states`.

    Raises:
        ValueError: If the hidden layer is larger, or not binary.

    Examples:

    >>> from keras_capsule_poe.functions import DenseMaps, Harmonium
    >>> machine = Harmonium(DenseMaps(ops.zeros((3, 4))), visible=GaussianUnits())
    >>> ops.convert_to_numpy(state_log_weights(machine)).tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
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
        # y^T gram y/2 of y = h - lambda, in powers of h.
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
    """States drawn from the laws P(h) that are proportional to exp(log weight), exactly.

    Args:
        log_weights: Tensor (G, 2^E), a law a row, nats.
        groups: Integer tensor (N,), the law of each draw.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.

    Returns:
        Tensor (N, E) of zeros and ones, of the type of the weights.

    Raises:
        ValueError: If there are not 2^E weights in a row, E from 1 to 20.

    Examples:

    >>> sure = ops.convert_to_tensor([[-1e9, -1e9, 0.0, -1e9]])
    >>> ops.convert_to_numpy(draw_states(sure, ops.zeros((2,), "int32"), seed=0)).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    log_weights = at_least_float32(log_weights)
    laws, states = log_weights.shape
    neurons = whole_number("neurons", states.bit_length() - 1)
    if states != 2**neurons or neurons > MOST_NEURONS:
        raise ValueError(
            f"`log_weights` must have 2^E columns, E of 1 to {MOST_NEURONS}. "
            f"Received: shape {tuple(log_weights.shape)}"
        )
    # First the upper neurons, then the lower ones given these: short rows instead of 2^E.
    few = 2 ** (neurons // 2)
    table = ops.reshape(log_weights, (laws, states // few, few))
    first, second = streams(seed, 2)
    upper = draw_index(ops.take(ops.logsumexp(table, axis=-1), groups, axis=0), first)
    rows = ops.cast(groups, "int32") * (states // few) + upper
    lower = draw_index(ops.take(ops.reshape(table, (-1, few)), rows, axis=0), second)
    return ops.cast(binary_states(few * upper + lower, neurons), log_weights.dtype)
