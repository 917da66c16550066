"""Units of an energy model: what a layer does with its input z, whatever the maps that give it.

A unit's free energy F(z) has its own state summed out; the free energy of a whole layer is the
sum over its units. All energies are in nats.
"""

import math

import keras
import numpy as np
from keras import backend, ops

from keras_capsule_poe.functions.norms import at_least_float32, folded, length, over_length
from keras_capsule_poe.functions.squash import squash, squashed_length


class CapsuleUnits:
    """Capsules that are on or off as a whole: E(z, on) = -on log |z|^2.

    So |squash(z)| is the probability that a capsule is on, and F(z) = -log(1 + |z|^2).

    Examples:

    >>> z = ops.ones((2, 5, 3))
    >>> CapsuleUnits().mean(z).shape, CapsuleUnits().free_energy(z).shape
    (TensorShape([2, 5, 3]), TensorShape([2, 5]))

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643)
    """

    def mean(self, z, axis=-1):
        """What a capsule sends on, squash(z), of the shape of z."""
        return squash(z, axis=axis)

    def pull(self, z, axis=-1):
        """-dF/dz = 2 z/(1 + |z|^2), of length at most one, of the shape of z."""
        z = ops.convert_to_tensor(z)
        wide = at_least_float32(z)
        n = length(wide, axis=axis, keepdims=True)
        inverse = 1 / ops.maximum(n, 1)
        # One factor 1/n at a time: 1/n^2 would underflow for a long vector.
        pull = wide * inverse * (2 * inverse / (1 + ops.square(folded(n))))
        return ops.cast(pull, z.dtype)

    def free_energy(self, z, axis=-1):
        """F = -log(1 + |z|^2), zero or negative, the axis of the vector summed out."""
        n = length(z, axis=axis)
        # log(1 + n^2) = 2 log n + log(1 + 1/n^2), which does not square a large n.
        return -(ops.log1p(ops.square(folded(n))) + 2 * ops.log(ops.maximum(n, 1)))

    def log_odds(self, z, axis=-1):
        """log |z|^2, that the capsule is on; the least finite value for the zero vector."""
        n = length(z, axis=axis)
        tiny = float(np.finfo(backend.standardize_dtype(n.dtype)).tiny)
        return 2 * ops.log(ops.maximum(n, tiny))

    def probability(self, z, axis=-1):
        """|z|^2/(1 + |z|^2), that the capsule is on: the length of its mean."""
        return squashed_length(length(z, axis=axis))

    def laid(self, lay):
        """The same units in a layout of maps, see `functions.maps`."""
        return self

    def mean_gradient(self, z, upstream, axis=-1):
        """Gradient in z, from that in `mean`."""
        n = length(z, axis, keepdims=True)
        unit = over_length(at_least_float32(z), n)
        along = unit * ops.sum(unit * upstream, axis=axis, keepdims=True)
        # squash(z) = f(n) z with f = n/(1+n^2), which is the same at n and at 1/n.
        s = folded(n)
        growth = ops.sign(1 - n) * s * (1 - ops.square(s)) / ops.square(1 + ops.square(s))
        return s / (1 + ops.square(s)) * upstream + growth * along

    def log_odds_gradient(self, z, upstream, axis=-1):
        """Gradient in z, from that in `log_odds`; zero at the zero vector."""
        n = length(z, axis, keepdims=True)
        slope = 2 * over_length(over_length(at_least_float32(z), n), n)
        return slope * ops.expand_dims(upstream, axis)


class ExponentialUnits:
    """Units of an exponential family: p(x | z) = exp(z.x - base_energy(x) + F(z)), x their state.

    F(z) = -log of the sum, or the integral, of exp(z.x - base_energy(x)) over the states.
    """

    def laid(self, lay):
        """The same units in a layout of maps, see `functions.maps`."""
        return self

    def pull(self, z, axis=-1):
        """-dF/dz, the mean, of the shape of z."""
        return self.mean(z, axis)

    def energy(self, x, z, axis=-1):
        """base_energy(x) - z.x, of the state x where z is received; the axis summed out."""
        return self.base_energy(x, axis) - ops.sum(x * z, axis=axis)


class Drawn:
    """Units of a law p(x | z) from which states are drawn: functions of z and of noise."""

    def noise(self, shape, dtype, seed):
        """What is random in a draw of units: numbers uniform in [0, 1).

        Args:
            shape: Tuple.
            dtype: str.
            seed: int or `keras.random.SeedGenerator`.
        """
        return keras.random.uniform(shape, dtype=dtype, seed=seed)

    def sample(self, z, seed):
        """Units drawn from p(x | z), of the shape of z.

        Args:
            z: Tensor.
            seed: int or `keras.random.SeedGenerator`.
        """
        z = at_least_float32(z)
        return self.drawn(z, self.noise(ops.shape(z), z.dtype, seed))


class _Neurons(Drawn, ExponentialUnits):
    """Units whose E numbers are neurons of their own, on together if any of them is."""

    def log_odds(self, z, axis=-1):
        """log(exp(-F) - 1), that the group is on."""
        energy = -self.free_energy(z, axis)
        return energy + ops.log(-ops.expm1(-energy))

    def probability(self, z, axis=-1):
        """1 - exp(F), that the group is on."""
        return -ops.expm1(self.free_energy(z, axis))

    def log_odds_gradient(self, z, upstream, axis=-1):
        """Gradient in z, from that in `log_odds`: pull over probability, times it."""
        log_probability = self.log_odds(z, axis) + self.free_energy(z, axis)
        # In logarithms: far below zero both vanish, and their quotient does not.
        slope = self._over(z, ops.expand_dims(log_probability, axis))
        return slope * ops.expand_dims(upstream, axis)


class BinaryUnits(_Neurons):
    """Neurons in {0, 1}: p(x = 1) = sigmoid(z), and F(z) = -sum_e log(1 + exp(z_e)).

    Examples:

    >>> units = BinaryUnits()
    >>> z = ops.zeros((2, 5, 3))
    >>> units.free_energy(z).shape, sorted(set(np.ravel(units.sample(z, seed=0)).tolist()))
    (TensorShape([2, 5]), [0.0, 1.0])

    Reference:

    - [Hinton, 2002](https://doi.org/10.1162/089976602760128018)
    """

    def mean(self, z, axis=-1):
        """sigmoid(z), of the shape of z."""
        return ops.sigmoid(at_least_float32(z))

    def free_energy(self, z, axis=-1):
        """-sum_e log(1 + exp(z_e)), the axis of the vector summed out."""
        return -ops.sum(ops.softplus(at_least_float32(z)), axis=axis)

    def base_energy(self, x, axis=-1):
        """Zero: without z both states are as likely; the axis of the vector summed out."""
        return ops.zeros_like(ops.sum(x, axis=axis))

    def log_odds(self, z, axis=-1):
        """log(prod_e (1 + exp(z_e)) - 1), that any neuron of the group is on."""
        z = at_least_float32(z)
        energy = ops.sum(ops.softplus(z), axis=axis)
        # log(1 + exp(z)) is z + log(1 + exp(-z)), and exp(z) where that is small.
        logs = ops.where(z < -10, z, ops.log(ops.softplus(ops.maximum(z, -10))))
        small = ops.logsumexp(logs, axis=axis) + ops.minimum(energy, 1) / 2
        held = ops.maximum(energy, 1e-3)
        return ops.where(energy < 1e-3, small, held + ops.log(-ops.expm1(-held)))

    def mean_gradient(self, z, upstream, axis=-1):
        """Gradient in z, from that in `mean`."""
        mean = self.mean(z)
        return mean * (1 - mean) * upstream

    def _over(self, z, log_probability):
        return ops.exp(ops.log_sigmoid(at_least_float32(z)) - log_probability)

    def drawn(self, z, noise):
        """Neurons of p(x | z), zeros and ones of the shape of z, that `noise` makes."""
        mean = self.mean(z)
        return ops.cast(noise < mean, mean.dtype)


class GaussianUnits(_Neurons):
    """Real neurons of unit variance: p(x) = N(z, 1), and F(z) = -|z|^2/2.

    Examples:

    >>> units = GaussianUnits()
    >>> float(units.free_energy(np.array([[3.0, 4.0]]))[0])
    -12.5

    Reference:

    - [Hinton & Salakhutdinov, 2006](https://doi.org/10.1126/science.1127647), linear units
    """

    def mean(self, z, axis=-1):
        """z itself."""
        return at_least_float32(z)

    def free_energy(self, z, axis=-1):
        """-|z|^2/2, the axis of the vector summed out."""
        return -ops.sum(ops.square(at_least_float32(z)), axis=axis) / 2

    def base_energy(self, x, axis=-1):
        """(|x|^2 + E log 2 pi)/2, so that exp(-base_energy) is the density of N(0, 1)."""
        return ops.sum(ops.square(x) + math.log(2 * math.pi), axis=axis) / 2

    def log_odds(self, z, axis=-1):
        """log(exp(|z|^2/2) - 1); the least finite value for the zero vector."""
        energy = -self.free_energy(z, axis)
        tiny = float(np.finfo(backend.standardize_dtype(energy.dtype)).tiny)
        held = ops.maximum(energy, tiny)
        return held + ops.log(-ops.expm1(-held))

    def mean_gradient(self, z, upstream, axis=-1):
        """Gradient in z, from that in `mean`."""
        return ops.convert_to_tensor(upstream)

    def _over(self, z, log_probability):
        return at_least_float32(z) * ops.exp(-log_probability)

    def noise(self, shape, dtype, seed):
        """What is random in a draw of units: standard Gaussian numbers."""
        return keras.random.normal(shape, dtype=dtype, seed=seed)

    def drawn(self, z, noise):
        """Neurons of N(z, 1), of the shape of z, that `noise` makes."""
        return self.mean(z) + noise


CAPSULES = CapsuleUnits()


def probability(z, axis=-1):
    """Probability that each expert capsule is on, |z|^2/(1+|z|^2) = sigmoid(log |z|^2).

    Args:
        z: Tensor (..., E), expert capsules before the squash.
        axis: The axis that holds the vector.

    Returns:
        Tensor (...) in [0, 1]; the length of `squash(z)`.

    Examples:

    >>> float(probability(np.array([[1.0, 0.0]]))[0])
    0.5
    """
    return CAPSULES.probability(z, axis=axis)


def free_energy(z, units=CAPSULES):
    """Free energy of the visible units, the sum of their experts': F = -sum_j log(1 + |z_j|^2).

    exp(-F) is the unnormalised probability of the visible units that gave `z`, the routing
    coefficients held fixed.

    Args:
        z: Tensor (B, J, E), what the experts receive.
        units: The experts' units.

    Returns:
        Tensor (B,), nats; lower is more probable.

    Examples:

    >>> free_energy(ops.ones((2, 5, 3))).shape
    TensorShape([2])

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), free energy of the product
    """
    return ops.sum(units.free_energy(at_least_float32(z)), axis=-1)
