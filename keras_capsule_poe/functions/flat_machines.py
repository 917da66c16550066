"""Conversions of an RBM of capsules: to flat neurons, and to one of its capsules."""

from keras import ops

from keras_capsule_poe.functions.harmonium import Harmonium
from keras_capsule_poe.functions.harmonium_units import CentredUnits
from keras_capsule_poe.functions.maps import DenseMaps


def flattened(harmonium):
    """Return the same RBM over flat neurons, with one matrix of the maps c_ij W_ij."""
    maps = harmonium.maps
    c = ops.cast(harmonium.coefficients, maps.kernel.dtype)
    kernel = ops.transpose(c[:, :, None, None] * maps.kernel, (1, 2, 0, 3))
    biases = harmonium.hidden_bias, harmonium.visible_bias
    return Harmonium(
        DenseMaps(ops.reshape(kernel, (kernel.shape[0] * kernel.shape[1], -1))),
        *(_flat_units(units) for units in (harmonium.hidden, harmonium.visible)),
        *(ops.reshape(bias, (-1,)) for bias in biases),
    )


def one_capsule(harmonium, capsule):
    """Return the RBM with a single hidden capsule, chosen by its index."""
    one = slice(capsule, capsule + 1)
    hidden = harmonium.hidden
    if isinstance(hidden, CentredUnits):
        hidden = CentredUnits(hidden.units, hidden.offset[one])
    return Harmonium(
        type(harmonium.maps)(harmonium.maps.kernel[:, one]),
        hidden,
        harmonium.visible,
        harmonium.hidden_bias[one],
        harmonium.visible_bias,
        harmonium.coefficients[:, one],
    )


def _flat_units(units):
    if isinstance(units, CentredUnits):
        return CentredUnits(units.units, ops.reshape(units.offset, (-1,)))
    return units
