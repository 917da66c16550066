"""Units of a harmonium: states in [0, 1], and units that are centred or tempered."""

import numpy as np
from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.units import Drawn, ExponentialUnits

# z coth(z/2)/2 - 1 = z^2/12 - z^4/720 + ..., from the Bernoulli numbers.
_SERIES = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)
# Instead of a division by zero; 1 - exp(-1e-30) is 1e-30 in any precision.
_LEAST = 1e-30


class UnitIntervalUnits(Drawn, ExponentialUnits):
    """Neurons in [0, 1] of density exp(z x) z/(exp(z) - 1): the truncated exponential.

    F(z) = -sum_e log((exp(z_e) - 1)/z_e).

    Examples:

    >>> units = UnitIntervalUnits()
    >>> float(units.mean(np.zeros(1))[0]), float(units.free_energy(np.zeros((1, 3)))[0])
    (0.5, 0.0)

    Reference:

    - [Welling et al., 2004](https://papers.nips.cc/paper/2672), exponential family harmoniums
    - [Larochelle et al., 2007](https://doi.org/10.1145/1273496.1273556), truncated exponential
    """

    def mean(self, z, axis=-1):
        """1/(1 - exp(-z)) - 1/z, of the shape of z."""
        z = at_least_float32(z)
        # coth(z/2)/2 - 1/z, whose two terms cancel at zero.
        small, m = ops.clip(z, -0.3, 0.3), ops.maximum(ops.abs(z), 0.3)
        square, series = ops.square(small), 0
        for coefficient in reversed(_SERIES):
            series = coefficient + square * series
        beyond = ops.sign(z) * (-1 / ops.expm1(-m) - 1 / m - 0.5)
        return 0.5 + ops.where(ops.abs(z) < 0.3, small * series, beyond)

    def free_energy(self, z, axis=-1):
        """-sum_e log((exp(z_e) - 1)/z_e), the axis of the vector summed out."""
        z = at_least_float32(z)
        m = ops.maximum(ops.abs(z), _LEAST)
        return ops.sum(ops.log(-m / ops.expm1(-m)) - ops.maximum(z, 0), axis=axis)

    def base_energy(self, x, axis=-1):
        """Zero: without z all states are as likely; the axis of the vector summed out."""
        return ops.zeros_like(ops.sum(x, axis=axis))

    def drawn(self, z, noise):
        """Neurons of p(x | z), of the shape of z, that `noise` makes."""
        z = at_least_float32(z)
        m = ops.maximum(ops.abs(z), _LEAST)
        # The inverse of the distribution function for -m; that for m is its mirror image.
        x = ops.clip(-ops.log1p(noise * ops.expm1(-m)) / m, 0, 1)
        return ops.where(z > 0, 1 - x, x)

    def field(self, mean):
        """z of which `mean` is the mean, by bisection.

        Args:
            mean: Array in (0, 1).

        Returns:
            Array of the shape of `mean`, within [-1e4, 1e4].
        """
        mean = np.asarray(mean, "float64")
        low, high = np.full_like(mean, -1e4), np.full_like(mean, 1e4)
        for _ in range(60):
            middle = (low + high) / 2
            is_below = ops.convert_to_numpy(self.mean(middle)) < mean
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return (low + high) / 2


class CentredUnits(Drawn, ExponentialUnits):
    """Units that send x - offset instead of x.

    With both sides centred the energy is E = -(v - mu).b - (h - lambda).(a + W (v - mu)), and
    `contrastive_divergence` of v - mu gives the centred gradients as it stands.

    Args:
        units: Units, see `functions.units`.
        offset: Tensor that broadcasts to the states.

    Examples:

    >>> from keras_capsule_poe.functions import BinaryUnits
    >>> np.asarray(CentredUnits(BinaryUnits(), 0.5).mean(np.zeros(2))).tolist()
    [0.0, 0.0]

    Reference:

    - [Montavon & Mueller, 2012](https://doi.org/10.1007/978-3-642-35289-8_33)
    - [Melchior et al., 2016](https://jmlr.org/papers/v17/14-237.html)
    """

    def __init__(self, units, offset):
        self.units, self.offset = units, offset

    def mean(self, z, axis=-1):
        """The units' mean less the offset."""
        return self._centred(self.units.mean(z, axis))

    def pull(self, z, axis=-1):
        """-dF/dz: the units' less the offset."""
        return self._centred(self.units.pull(z, axis))

    def free_energy(self, z, axis=-1):
        """The units' + offset.z, the axis of the vector summed out."""
        z = at_least_float32(z)
        return self.units.free_energy(z, axis) + ops.sum(z * self._offset(z), axis=axis)

    def base_energy(self, x, axis=-1):
        """The units' at x + offset."""
        return self.units.base_energy(x + self._offset(x), axis)

    def noise(self, shape, dtype, seed):
        """The units'."""
        return self.units.noise(shape, dtype, seed)

    def drawn(self, z, noise):
        """The units' less the offset."""
        return self._centred(self.units.drawn(z, noise))

    def laid(self, lay):
        """The same units in a layout of maps; `lay` leads there from (B, J, E)."""
        offset = ops.convert_to_tensor(self.offset)
        return CentredUnits(self.units, lay(offset[None])) if len(offset.shape) > 1 else self

    def _centred(self, x):
        return x - self._offset(x)

    def _offset(self, x):
        return ops.convert_to_tensor(self.offset, dtype=x.dtype)


class TemperedUnits(Drawn, ExponentialUnits):
    """Units that receive beta z + (1 - beta) base instead of z: an inverse temperature each.

    A harmonium of tempered units has the energy (1 - beta) E_base + beta E, where E_base has no
    maps and the visible biases `base`.

    Args:
        units: Units, see `functions.units`.
        beta: Tensor that broadcasts to z, in [0, 1].
        base: Tensor that broadcasts to z, what is received where beta is zero.

    Examples:

    >>> from keras_capsule_poe.functions import GaussianUnits
    >>> float(TemperedUnits(GaussianUnits(), 0.25, base=8.0).mean(np.ones(1))[0])
    6.25
    """

    def __init__(self, units, beta, base=0.0):
        self.units, self.beta, self.base = units, beta, base

    def mean(self, z, axis=-1):
        """The units' mean at the tempered z."""
        return self.units.mean(self._tempered(z), axis)

    def pull(self, z, axis=-1):
        """-dF/dz = beta times the units' pull."""
        z = self._tempered(z)
        return ops.convert_to_tensor(self.beta, dtype=z.dtype) * self.units.pull(z, axis)

    def free_energy(self, z, axis=-1):
        """The units' at the tempered z."""
        return self.units.free_energy(self._tempered(z), axis)

    def base_energy(self, x, axis=-1):
        """The units'."""
        return self.units.base_energy(x, axis)

    def energy(self, x, z, axis=-1):
        """The units' at the tempered z."""
        return self.units.energy(x, self._tempered(z), axis)

    def noise(self, shape, dtype, seed):
        """The units'."""
        return self.units.noise(shape, dtype, seed)

    def drawn(self, z, noise):
        """The units' at the tempered z."""
        return self.units.drawn(self._tempered(z), noise)

    def laid(self, lay):
        """The same units in a layout of maps; `lay` leads there from (B, J, E)."""
        base = ops.convert_to_tensor(self.base)
        base = lay(base[None]) if len(base.shape) > 1 else base
        return TemperedUnits(self.units.laid(lay), self.beta, base)

    def _tempered(self, z):
        z = at_least_float32(z)
        base = ops.convert_to_tensor(self.base, dtype=z.dtype)
        return base + ops.convert_to_tensor(self.beta, dtype=z.dtype) * (z - base)


def plain_units(units):
    """The units themselves, of centred ones those that are centred."""
    return units.units if isinstance(units, CentredUnits) else units


def offset_of(units, dtype):
    """The offset of centred units, of others zero."""
    return ops.cast(getattr(units, "offset", 0.0), dtype)
