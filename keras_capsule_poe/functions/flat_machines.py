"""A machine of capsules as one of flat neurons, and the machine of one capsule alone."""

from keras import ops

from keras_capsule_poe.functions.harmonium import Harmonium
from keras_capsule_poe.functions.harmonium_units import CentredUnits
from keras_capsule_poe.functions.maps import DenseMaps


def flattened(harmonium):
    """The same machine over flat neurons: one matrix, of maps c_ij W_ij.

    Args:
        harmonium: `Harmonium` of maps between capsules, of coefficients (I, J).

    Returns:
        `Harmonium` with `DenseMaps`, of (B, J E) hidden and (B, I D) visible neurons.

    Examples:

    >>> from keras_capsule_poe.functions import EinsumMaps
    >>> maps, c = EinsumMaps(ops.ones((6, 5, 3, 4))), ops.ones((6, 5))
    >>> flattened(Harmonium(maps, coefficients=c)).maps.kernel.shape
    TensorShape([15, 24])
    """
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
    """The machine of one hidden capsule; all others send nothing.

    Args:
        harmonium: `Harmonium` of maps between capsules, of coefficients (I, J).
        capsule: int, its index.

    Returns:
        `Harmonium` of J = 1.

    Examples:

    >>> from keras_capsule_poe.functions import EinsumMaps
    >>> maps, c = EinsumMaps(ops.ones((6, 5, 3, 4))), ops.ones((6, 5))
    >>> one_capsule(Harmonium(maps, coefficients=c), 2).maps.output_shape
    (1, 3)
    """
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
