"""Units with states in the unit interval, and wrappers that centre or temper other units."""

import numpy as np
from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.units import Drawn, ExponentialUnits

# z coth(z/2)/2 - 1 = z^2/12 - z^4/720 + ..., from the Bernoulli numbers.
_SERIES = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)
# Avoids a division by zero; 1 - exp(-1e-30) is 1e-30 in any precision.
_LEAST = 1e-30


class UnitIntervalUnits(Drawn, ExponentialUnits):
    """Neurons in `[0, 1]` with the truncated exponential density `exp(z x) z/(exp(z) - 1)`.

    The free energy is `F(z) = -sum_e log((exp(z_e) - 1)/z_e)`.

    Example:

    >>> units = UnitIntervalUnits()
    >>> float(units.mean(np.zeros(1))[0]), float(units.free_energy(np.zeros((1, 3)))[0])
    (0.5, 0.0)

    Reference:

    - [Welling et al., 2004](https://papers.nips.cc/paper/2672), exponential family harmoniums
    - [Larochelle et al., 2007](https://doi.org/10.1145/1273496.1273556), truncated exponential
    """

    def mean(self, z, axis=-1):
        """Return `1/(1 - exp(-z)) - 1/z`, of the shape of z."""
        z = at_least_float32(z)
        # coth(z/2)/2 - 1/z, whose two terms cancel at zero.
        small, m = ops.clip(z, -0.3, 0.3), ops.maximum(ops.abs(z), 0.3)
        square, series = ops.square(small), 0
        for coefficient in reversed(_SERIES):
            series = coefficient + square * series
        beyond = ops.sign(z) * (-1 / ops.expm1(-m) - 1 / m - 0.5)
        return 0.5 + ops.where(ops.abs(z) < 0.3, small * series, beyond)

    def free_energy(self, z, axis=-1):
        """Return `-sum_e log((exp(z_e) - 1)/z_e)`, summed over `axis`."""
        z = at_least_float32(z)
        m = ops.maximum(ops.abs(z), _LEAST)
        return ops.sum(ops.log(-m / ops.expm1(-m)) - ops.maximum(z, 0), axis=axis)

    def base_energy(self, x, axis=-1):
        """Return zero, the base energy of the uniform density, without `axis`."""
        return ops.zeros_like(ops.sum(x, axis=axis))

    def drawn(self, z, noise):
        """Map uniform noise to draws from p(x | z), of the shape of z."""
        z = at_least_float32(z)
        m = ops.maximum(ops.abs(z), _LEAST)
        # The inverse distribution function for -m; for m it is mirrored.
        x = ops.clip(-ops.log1p(noise * ops.expm1(-m)) / m, 0, 1)
        return ops.where(z > 0, 1 - x, x)

    def field(self, mean):
        """Return the z in `[-1e4, 1e4]` with the given `mean` in (0, 1), by bisection."""
        mean = np.asarray(mean, "float64")
        low, high = np.full_like(mean, -1e4), np.full_like(mean, 1e4)
        for _ in range(60):
            middle = (low + high) / 2
            is_below = ops.convert_to_numpy(self.mean(middle)) < mean
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return (low + high) / 2


class CentredUnits(Drawn, ExponentialUnits):
    """Units that send x - offset instead of x.

    An RBM with both sides centred has the energy `-(v - mu).b - (h - lambda).(a + W (v - mu))`,
    plus base energies. `contrastive_divergence` of `v - mu` then gives the centred gradients.

    Args:
        units: Units of an exponential family.
        offset: Tensor that broadcasts to the states.

    Example:

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
        """Return the units' mean less the offset, of the shape of z."""
        return self._centred(self.units.mean(z, axis))

    def pull(self, z, axis=-1):
        """Return the score -dF/dz, that of the units less the offset."""
        return self._centred(self.units.pull(z, axis))

    def free_energy(self, z, axis=-1):
        """Return the units' free energy plus offset.z, summed over `axis`."""
        z = at_least_float32(z)
        return self.units.free_energy(z, axis) + ops.sum(z * self._offset(z), axis=axis)

    def base_energy(self, x, axis=-1):
        """Return the units' base energy at x + offset, summed over `axis`."""
        return self.units.base_energy(x + self._offset(x), axis)

    def noise(self, shape, dtype, seed):
        return self.units.noise(shape, dtype, seed)

    def drawn(self, z, noise):
        return self._centred(self.units.drawn(z, noise))

    def laid(self, lay):
        offset = ops.convert_to_tensor(self.offset)
        return CentredUnits(self.units, lay(offset[None])) if len(offset.shape) > 1 else self

    def _centred(self, x):
        return x - self._offset(x)

    def _offset(self, x):
        return ops.convert_to_tensor(self.offset, dtype=x.dtype)


class TemperedUnits(Drawn, ExponentialUnits):
    """Units at an inverse temperature beta, with pre-activation `beta z + (1 - beta) base`.

    An RBM of such units has the energy `(1 - beta) E_base + beta E`. E_base has no maps, and its
    visible biases are `base`.

    Args:
        units: Units of an exponential family.
        beta: Tensor that broadcasts to z, in `[0, 1]`.
        base: Tensor that broadcasts to z, the pre-activation at beta zero.

    Example:

    >>> from keras_capsule_poe.functions import GaussianUnits
    >>> float(TemperedUnits(GaussianUnits(), 0.25, base=8.0).mean(np.ones(1))[0])
    6.25
    """

    def __init__(self, units, beta, base=0.0):
        self.units, self.beta, self.base = units, beta, base

    def mean(self, z, axis=-1):
        """Return the units' mean at the tempered pre-activation."""
        return self.units.mean(self._tempered(z), axis)

    def pull(self, z, axis=-1):
        """Return the score -dF/dz, beta times that of the units."""
        z = self._tempered(z)
        return ops.convert_to_tensor(self.beta, dtype=z.dtype) * self.units.pull(z, axis)

    def free_energy(self, z, axis=-1):
        """Return the units' free energy at the tempered pre-activation."""
        return self.units.free_energy(self._tempered(z), axis)

    def base_energy(self, x, axis=-1):
        """Return the units' base energy, summed over `axis`."""
        return self.units.base_energy(x, axis)

    def energy(self, x, z, axis=-1):
        return self.units.energy(x, self._tempered(z), axis)

    def noise(self, shape, dtype, seed):
        return self.units.noise(shape, dtype, seed)

    def drawn(self, z, noise):
        return self.units.drawn(self._tempered(z), noise)

    def laid(self, lay):
        base = ops.convert_to_tensor(self.base)
        base = lay(base[None]) if len(base.shape) > 1 else base
        return TemperedUnits(self.units.laid(lay), self.beta, base)

    def _tempered(self, z):
        z = at_least_float32(z)
        base = ops.convert_to_tensor(self.base, dtype=z.dtype)
        return base + ops.convert_to_tensor(self.beta, dtype=z.dtype) * (z - base)


def plain_units(units):
    """Return the units without centring."""
    return units.units if isinstance(units, CentredUnits) else units


def offset_of(units, dtype):
    """Return the offset of centred units, zero for others."""
    return ops.cast(getattr(units, "offset", 0.0), dtype)
