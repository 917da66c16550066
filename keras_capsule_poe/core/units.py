"""Units of an energy model: mean, score and free energy of a pre-activation z, in nats."""

import math
from typing import Any

import keras
import numpy as np
from keras import backend, ops

from keras_capsule_poe._types import Seed, Tensor
from keras_capsule_poe.core.numerics import (
    at_least_float32,
    direction,
    folded,
    length,
    over_length,
    squash,
    squashed_length,
)
from keras_capsule_poe.errors import BadUse


class OnOffUnits:
    """Capsules that are on or off as a whole, with energy `E(z, on) = -on log_odds(z)`.

    A subclass gives `log_odds`, a function of the length of z, and `log_odds_gradient`. All else
    follows: the probability to be on, the free energy, the score, and the mean, which is the squash
    of z. In all methods, `axis` is the axis of the vector.

    Example:

    >>> class SteepUnits(OnOffUnits):
    ...     def log_odds(self, z, axis=-1):  # 4 log |z|
    ...         return 2 * CAPSULES.log_odds(z, axis)
    ...     def log_odds_gradient(self, z, upstream, axis=-1):
    ...         return 2 * CAPSULES.log_odds_gradient(z, upstream, axis)
    >>> np.asarray(SteepUnits().mean(np.array([[2.0, 0.0]]))).round(3).tolist()
    [[0.941, 0.0]]

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643)
    """

    def log_odds(self, z, axis=-1):
        """Return the log-odds to be on, in nats, without the axis."""
        raise NotImplementedError

    def log_odds_gradient(self, z, upstream, axis=-1):
        """Return the gradient in z, given that in `log_odds`."""
        raise NotImplementedError

    def probability(self, z, axis=-1):
        """Return the probability to be on, without the axis."""
        return ops.sigmoid(self.log_odds(z, axis))

    def free_energy(self, z, axis=-1):
        """Return `F = -log(1 + exp(log_odds))` in nats, without the axis."""
        return -ops.softplus(self.log_odds(z, axis))

    def score(self, z, axis=-1):
        """Return the score -dF/dz, of the shape of z."""
        return self.log_odds_gradient(z, self.probability(z, axis), axis)

    def mean(self, z, axis=-1):
        """Return the vector along z whose length is the probability."""
        z = at_least_float32(z)
        return ops.expand_dims(self.probability(z, axis), axis) * direction(z, axis)

    def laid(self, lay):
        """Return these units for the layout of some maps."""
        return self


class CapsuleUnits(OnOffUnits):
    """Capsules that are on or off as a whole, with energy `E(z, on) = -on log |z|^2`.

    The length of the mean squash(z) is the probability that a capsule is on. The free energy
    is `F(z) = -log(1 + |z|^2)`, in nats. In all methods, `axis` is the axis of the vector.

    Example:

    >>> z = ops.ones((2, 5, 3))
    >>> CapsuleUnits().mean(z).shape, CapsuleUnits().free_energy(z).shape
    (TensorShape([2, 5, 3]), TensorShape([2, 5]))

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643)
    """

    def mean(self, z, axis=-1):
        """Return squash(z), of the shape of z."""
        return squash(z, axis=axis)

    def score(self, z, axis=-1):
        """Return the score `-dF/dz = 2 z/(1 + |z|^2)`, of the shape of z and at most length one."""
        z = ops.convert_to_tensor(z)
        wide = at_least_float32(z)
        n = length(wide, axis=axis, keepdims=True)
        inverse = 1 / ops.maximum(n, 1)
        # Multiply by 1/n twice, because 1/n^2 underflows for a long vector.
        score = wide * inverse * (2 * inverse / (1 + ops.square(folded(n))))
        return ops.cast(score, z.dtype)

    def free_energy(self, z, axis=-1):
        """Return `F = -log(1 + |z|^2)` in nats, zero or negative, without the axis."""
        n = length(z, axis=axis)
        # log(1 + n^2) = 2 log n + log(1 + 1/n^2) avoids the square of a large n.
        return -(ops.log1p(ops.square(folded(n))) + 2 * ops.log(ops.maximum(n, 1)))

    def log_odds(self, z, axis=-1):
        """Return `log |z|^2`, without the axis; a finite minimum for the zero vector."""
        n = length(z, axis=axis)
        tiny = float(np.finfo(backend.standardize_dtype(n.dtype)).tiny)
        return 2 * ops.log(ops.maximum(n, tiny))

    def probability(self, z, axis=-1):
        """Return `|z|^2/(1 + |z|^2)`, the probability to be on, without the axis."""
        return squashed_length(length(z, axis=axis))

    def mean_gradient(self, z, upstream, axis=-1):
        """Return the gradient in z, given the gradient in `mean`."""
        n = length(z, axis, keepdims=True)
        unit = over_length(at_least_float32(z), n)
        along = unit * ops.sum(unit * upstream, axis=axis, keepdims=True)
        # squash(z) = f(n) z with f(n) = n/(1 + n^2) = f(1/n).
        s = folded(n)
        growth = ops.sign(1 - n) * s * (1 - ops.square(s)) / ops.square(1 + ops.square(s))
        return s / (1 + ops.square(s)) * upstream + growth * along

    def log_odds_gradient(self, z, upstream, axis=-1):
        """Return the gradient in z, given that in `log_odds`; zero at the zero vector."""
        n = length(z, axis, keepdims=True)
        slope = 2 * over_length(over_length(at_least_float32(z), n), n)
        return slope * ops.expand_dims(upstream, axis)


class ExponentialUnits:
    """Units of an exponential family: p(x | z) = exp(z.x - base_energy(x) + F(z))."""

    def laid(self, lay):
        """Return these units for the layout of some maps."""
        return self

    def score(self, z, axis=-1):
        """Return the score -dF/dz, which is the mean, of the shape of z."""
        return self.mean(z, axis)

    def energy(self, x, z, axis=-1):
        """Return the energy base_energy(x) - z.x of the states x, summed over the axis."""
        return self.base_energy(x, axis) - ops.sum(x * z, axis=axis)


class Drawn:
    """Units with states to sample, as functions of z and of noise."""

    def noise(self, shape, dtype, seed):
        """Return the noise of a sample: uniform numbers in [0, 1)."""
        return keras.random.uniform(shape, dtype=dtype, seed=seed)

    def sample(self: Any, z: Tensor, seed: Seed) -> Tensor:
        """Sample units from p(x | z), of the shape of z."""
        z = at_least_float32(z)
        return self.drawn(z, self.noise(ops.shape(z), z.dtype, seed))


class _Neurons(Drawn, ExponentialUnits):
    """Units of E separate neurons; the group is on if any neuron is on."""

    def log_odds(self, z, axis=-1):
        """Return the log-odds `log(exp(-F) - 1)` that the group is on."""
        energy = -self.free_energy(z, axis)
        return energy + ops.log(-ops.expm1(-energy))

    def probability(self, z, axis=-1):
        """Return the probability `1 - exp(F)` that the group is on."""
        return -ops.expm1(self.free_energy(z, axis))

    def log_odds_gradient(self, z, upstream, axis=-1):
        """Return the gradient in z, given that in `log_odds`."""
        log_probability = self.log_odds(z, axis) + self.free_energy(z, axis)
        # score/probability, in logarithms: for very negative z both underflow, but not the ratio.
        slope = self._over(z, ops.expand_dims(log_probability, axis))
        return slope * ops.expand_dims(upstream, axis)


class BinaryUnits(_Neurons):
    """Binary neurons: `p(x = 1) = sigmoid(z)` and `F(z) = -sum_e log(1 + exp(z_e))`.

    Example:

    >>> units = BinaryUnits()
    >>> z = ops.zeros((2, 5, 3))
    >>> units.free_energy(z).shape, sorted(set(np.ravel(units.sample(z, seed=0)).tolist()))
    (TensorShape([2, 5]), [0.0, 1.0])

    Reference:

    - [Hinton, 2002](https://doi.org/10.1162/089976602760128018)
    """

    def mean(self, z, axis=-1):
        """Return sigmoid(z), of the shape of z."""
        return ops.sigmoid(at_least_float32(z))

    def free_energy(self, z, axis=-1):
        """Return `-sum_e log(1 + exp(z_e))` in nats, summed over the axis."""
        return -ops.sum(ops.softplus(at_least_float32(z)), axis=axis)

    def base_energy(self, x, axis=-1):
        """Return zeros, summed over the axis: for z = 0 the two states are equally likely."""
        return ops.zeros_like(ops.sum(x, axis=axis))

    def log_odds(self, z, axis=-1):
        """Return the log-odds `log(prod_e (1 + exp(z_e)) - 1)` that any neuron is on."""
        z = at_least_float32(z)
        energy = ops.sum(ops.softplus(z), axis=axis)
        # For a small energy e, log(exp(e) - 1) is about log(e) + e/2, and log(softplus(z)) is
        # about z for very negative z.
        logs = ops.where(z < -10, z, ops.log(ops.softplus(ops.maximum(z, -10))))
        small = ops.logsumexp(logs, axis=axis) + ops.minimum(energy, 1) / 2
        held = ops.maximum(energy, 1e-3)
        return ops.where(energy < 1e-3, small, held + ops.log(-ops.expm1(-held)))

    def mean_gradient(self, z, upstream, axis=-1):
        """Return the gradient in z, given the gradient in `mean`."""
        mean = self.mean(z)
        return mean * (1 - mean) * upstream

    def _over(self, z, log_probability):
        return ops.exp(ops.log_sigmoid(at_least_float32(z)) - log_probability)

    def drawn(self, z, noise):
        """Return samples of p(x | z), zeros and ones, from uniform `noise`."""
        mean = self.mean(z)
        return ops.cast(noise < mean, mean.dtype)


class GaussianUnits(_Neurons):
    """Real neurons of unit variance: `p(x | z) = N(z, 1)` and `F(z) = -|z|^2/2`.

    Example:

    >>> units = GaussianUnits()
    >>> float(units.free_energy(np.array([[3.0, 4.0]]))[0])
    -12.5

    Reference:

    - [Hinton & Salakhutdinov, 2006](https://doi.org/10.1126/science.1127647), linear units
    """

    def mean(self, z, axis=-1):
        """Return z itself."""
        return at_least_float32(z)

    def free_energy(self, z, axis=-1):
        """Return `-|z|^2/2` in nats, summed over the axis."""
        return -ops.sum(ops.square(at_least_float32(z)), axis=axis) / 2

    def base_energy(self, x, axis=-1):
        """Return `(|x|^2 + E log 2 pi)/2`, minus the log-density of x under N(0, 1)."""
        return ops.sum(ops.square(x) + math.log(2 * math.pi), axis=axis) / 2

    def log_odds(self, z, axis=-1):
        """Return `log(exp(|z|^2/2) - 1)`; a finite minimum for the zero vector."""
        energy = -self.free_energy(z, axis)
        tiny = float(np.finfo(backend.standardize_dtype(energy.dtype)).tiny)
        held = ops.maximum(energy, tiny)
        return held + ops.log(-ops.expm1(-held))

    def mean_gradient(self, z, upstream, axis=-1):
        """Return the gradient in z, given the gradient in `mean`."""
        return ops.convert_to_tensor(upstream)

    def _over(self, z, log_probability):
        return at_least_float32(z) * ops.exp(-log_probability)

    def noise(self, shape, dtype, seed):
        """Return the noise of a sample: standard Gaussian numbers."""
        return keras.random.normal(shape, dtype=dtype, seed=seed)

    def drawn(self, z, noise):
        """Return samples of N(z, 1), of the shape of z, from Gaussian `noise`."""
        return self.mean(z) + noise


CAPSULES = CapsuleUnits()


def squashed(z, units=CAPSULES):
    """Return vectors along z (..., E) that are as long as the probability to be on."""
    if isinstance(units, OnOffUnits):
        return units.mean(z)
    return units.probability(z)[..., None] * direction(z)


def check_units(units):
    """Raise `BadUse` unless the methods of units belong together."""
    z = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    odds, step = units.log_odds(z), 1e-2
    moved = step * np.eye(3, dtype="float32")[:, None]
    wanted = {
        "probability": ops.sigmoid(odds),
        "free_energy": -ops.softplus(odds),
        "score": ops.transpose(units.free_energy(z - moved) - units.free_energy(z + moved))
        / (2 * step),
    }
    if isinstance(units, OnOffUnits):
        wanted["mean"] = OnOffUnits.mean(units, z)
    for method, value in wanted.items():
        found = ops.convert_to_numpy(getattr(units, method)(z))
        if not np.allclose(found, ops.convert_to_numpy(value), rtol=1e-2, atol=1e-2):
            raise BadUse(
                f"`units` must have a `{method}` that follows from its `log_odds`: extend "
                f"`functions.OnOffUnits`, which derives it. Received: {type(units).__name__}"
            )


def probability(z: Tensor, axis: int = -1) -> Tensor:
    """Return the probability `|z|^2/(1 + |z|^2) = sigmoid(log |z|^2)` that a capsule is on.

    Args:
        z: Tensor (..., E), pre-activations.
        axis: int, the axis of the vector.

    Returns:
        Tensor (...) in [0, 1], the length of `squash(z)`.

    Example:

    >>> float(probability(np.array([[1.0, 0.0]]))[0])
    0.5
    """
    return CAPSULES.probability(z, axis=axis)


def free_energy(z: Tensor, units: Any = CAPSULES) -> Tensor:
    """Return the free energy of the visible units, `F = -sum_j log(1 + |z_j|^2)`.

    For fixed coupling coefficients, exp(-F) is the unnormalised probability of the visible units.

    Args:
        z: Tensor (B, J, E), pre-activations of the experts.
        units: Units of the experts, such as `CapsuleUnits`.

    Returns:
        Tensor (B,), in nats. A lower value is more probable.

    Example:

    >>> free_energy(ops.ones((2, 5, 3))).shape
    TensorShape([2])

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), free energy of the product
    """
    return ops.sum(units.free_energy(at_least_float32(z)), axis=-1)


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

    def __init__(self, units: Any, offset: Tensor) -> None:
        self.units, self.offset = units, offset

    def mean(self, z, axis=-1):
        """Return the units' mean less the offset, of the shape of z."""
        return self._centred(self.units.mean(z, axis))

    def score(self, z, axis=-1):
        """Return the score -dF/dz, that of the units less the offset."""
        return self._centred(self.units.score(z, axis))

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

    def __init__(self, units: Any, beta: Tensor, base: Tensor = 0.0) -> None:
        self.units, self.beta, self.base = units, beta, base

    def mean(self, z, axis=-1):
        """Return the units' mean at the tempered pre-activation."""
        return self.units.mean(self._tempered(z), axis)

    def score(self, z, axis=-1):
        """Return the score -dF/dz, beta times that of the units."""
        z = self._tempered(z)
        return ops.convert_to_tensor(self.beta, dtype=z.dtype) * self.units.score(z, axis)

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
