"""Products of experts P_b = P_0 w^b / Z_b: P_0 of the visible capsules, weights, transitions.

Transitions map (states, log w, b, seed) to (states, log w), as `annealed_importance` requires.
They leave P_b invariant, and need neither a step size nor a derivative of w.
"""

import math

import keras
import numpy as np
from keras import ops
from scipy.special import gammaln

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.maps import DenseMaps
from keras_capsule_poe.core.numerics import (
    StatelessSeed,
    at_least_float32,
    direction,
    real_number,
    squash,
    streams,
    whole_number,
)
from keras_capsule_poe.core.routing import Router
from keras_capsule_poe.core.units import (
    CAPSULES,
    GaussianUnits,
    free_energy,
    offset_of,
    plain_units,
)


class _IndependentCapsules:
    """Independent, identically distributed input capsules (I, D)."""

    is_gaussian = False

    def __init__(self, inputs: int, dim: int) -> None:
        self.inputs, self.dim = whole_number("inputs", inputs), whole_number("dim", dim)

    def draw(self, n, seed, dtype=None):
        """Return independent draws (n, I, D)."""
        return self.draw_capsules(n, self.inputs, seed, dtype)

    def __repr__(self):
        return f"{type(self).__name__}(inputs={self.inputs}, dim={self.dim})"


class UniformBall(_IndependentCapsules):
    """Reference distribution with each capsule uniform in the unit ball.

    The ball `|x_i| < 1` is the range of the squash function.

    Args:
        inputs: int, I, input capsules.
        dim: int, D, dimensions of a capsule.

    Example:

    >>> base = UniformBall(6, 4)
    >>> base.draw(3, seed=0).shape, round(base.variance, 3)
    (TensorShape([3, 6, 4]), 0.167)
    """

    name = "ball"

    @property
    def variance(self):
        """Variance of each coordinate, `1/(D + 2)`."""
        return 1 / (self.dim + 2)

    def draw_capsules(self, n, capsules, seed, dtype=None):
        """Return draws (n, capsules, D)."""
        dtype = dtype or keras.config.floatx()
        one, two = streams(seed, 2)
        noise = keras.random.normal((n, capsules, self.dim), dtype=dtype, seed=one)
        u = keras.random.uniform((n, capsules, 1), dtype=dtype, seed=two)
        return radius(u, self.dim) * direction(noise)

    def describe(self):
        return f"uniform on the balls |x_i| < 1, {self.inputs} of {self.dim} dimensions"


def radius(u, dim):
    """Return the radius `u^(1/D)` of a uniform draw from the unit ball, u uniform in `[0, 1]`."""
    return u ** (1 / dim)


class SquashedGaussian(_IndependentCapsules):
    """Reference distribution of squashed Gaussian noise, `x = squash(zeta)`.

    `zeta` is `N(0, t^2/D)` in each dimension. The attribute `latent` is its distribution.

    Args:
        inputs: int, I, input capsules.
        dim: int, D, dimensions of a capsule.
        length: float, t, root mean square of `|zeta_i|`. Use `PrimaryCapsules.target_length` for
            noise as long as the data.

    Example:

    >>> base = SquashedGaussian(6, 4, length=0.5)
    >>> base.draw(3, seed=0).shape, bool(ops.all(base.latent.draw(3, seed=0) != 0))
    (TensorShape([3, 6, 4]), True)
    """

    name = "isotropic"

    def __init__(self, inputs: int, dim: int, length: float) -> None:
        super().__init__(inputs, dim)
        self.length = real_number("length", length, above=0)
        self.latent = _Isotropic(inputs, dim, self.length)

    @property
    def variance(self):
        """Variance of each coordinate of x, by quadrature over `|zeta|`."""
        # It imports much of SciPy.
        from scipy.integrate import quad

        def integrand(n):
            square = (self.length * n) ** 2 / self.dim
            return (square / (1 + square)) ** 2 * _chi(n, self.dim)

        # A chi variable of D dimensions concentrates around sqrt(D), so the rest is negligible.
        return quad(integrand, 0, self.dim**0.5 + 12, epsabs=0, limit=200)[0] / self.dim

    def draw_capsules(self, n, capsules, seed, dtype=None):
        """Return draws (n, capsules, D)."""
        return squash(self.latent.draw_capsules(n, capsules, seed, dtype))

    def describe(self):
        return (
            f"squash of Gaussian noise of length {self.length:g}, {self.inputs} capsules of "
            f"{self.dim} dimensions"
        )

    def __repr__(self):
        return f"{super().__repr__()[:-1]}, length={self.length:g})"


def _chi(n, dim):
    """Return the density at n of the length of a standard Gaussian vector."""
    constant = (dim / 2 - 1) * np.log(2) + gammaln(dim / 2)
    return n ** (dim - 1) * np.exp(-(n**2) / 2 - constant)


class _Isotropic(_IndependentCapsules):
    """Capsules before the squash, `N(0, t^2/D)` in each dimension."""

    is_gaussian = True

    def __init__(self, inputs, dim, length):
        super().__init__(inputs, dim)
        self._stddev = length / self.dim**0.5

    def draw_capsules(self, n, capsules, seed, dtype=None):
        dtype = dtype or keras.config.floatx()
        return keras.random.normal(
            (n, capsules, self.dim), stddev=self._stddev, dtype=dtype, seed=seed
        )


class CentredGaussian:
    """Reference distribution `N(0, F F^T)` of x, with any covariance.

    Draws can be longer than one, unlike squashed capsules. The pre-activations of experts with
    fixed coupling coefficients are Gaussian too, see `of_experts`.

    Args:
        factor: Array (I, D, R), F.

    Raises:
        ValueError: If `factor` has another rank or is not finite.

    Example:

    >>> base = CentredGaussian(np.ones((6, 4, 2), "float32"))
    >>> base.draw(3, seed=0).shape, base.covariance.shape
    (TensorShape([3, 6, 4]), (6, 4, 6, 4))
    """

    name = "gaussian"
    is_gaussian = True

    def __init__(self, factor: Tensor) -> None:
        factor = np.asarray(factor)
        if factor.ndim != 3 or not np.isfinite(factor).all():
            raise ValueError(
                "`factor` must be finite, of shape (I, D, R). "
                f"Received: an array of shape {factor.shape}"
            )
        self.inputs, self.dim, self.rank = factor.shape
        # A graph holds a reference to a tensor, but a copy of an array.
        columns = np.ascontiguousarray(factor.reshape(-1, self.rank).T)
        self._columns = ops.convert_to_tensor(columns, dtype=columns.dtype.name)

    @classmethod
    def from_covariance(cls, covariance):
        """Return the Gaussian with a covariance (I, D, I, D), which may be singular.

        Raises:
            ValueError: If the array is not symmetric or has a negative eigenvalue.
        """
        covariance = np.asarray(covariance)
        rounding = 1e3 * np.finfo(np.result_type(covariance, "float32")).eps
        shape = covariance.shape
        flat = covariance.reshape(np.prod(shape[:2], dtype=int), -1)
        if covariance.ndim != 4 or shape[:2] != shape[2:] or not np.allclose(flat, flat.T):
            raise ValueError(
                "`covariance` must be symmetric, of shape (I, D, I, D). "
                f"Received: an array of shape {shape}"
            )
        values, vectors = np.linalg.eigh(flat.astype("float64"))
        if values[0] < -rounding * max(values[-1], 1e-300):
            raise ValueError(
                "`covariance` must have no negative eigenvalue. "
                f"Received: one with the eigenvalue {values[0]:g}"
            )
        return cls((vectors * np.sqrt(np.maximum(values, 0))).reshape(*shape[:2], -1))

    @classmethod
    def from_samples(cls, x):
        """Return the zero-mean Gaussian with the second moments of x (N, I, D)."""
        x = np.asarray(x)
        return cls(np.moveaxis(x, 0, -1) / np.sqrt(len(x)).astype(x.dtype))

    @property
    def factor(self):
        """Array F (I, D, R)."""
        columns = ops.convert_to_numpy(self._columns)
        return columns.T.reshape(self.inputs, self.dim, self.rank)

    @property
    def covariance(self):
        """Array F F^T (I, D, I, D)."""
        return np.tensordot(self.factor, self.factor, axes=(2, 2))

    def of_experts(self, kernel, coefficients):
        """Return the `CentredGaussian` (J, E) of the pre-activations `z_j = sum_i c_ij W_ij x_i`.

        Args:
            kernel: Array (I, J, E, D), the maps W_ij.
            coefficients: Array (I, J), fixed coupling coefficients c_ij.
        """
        # In float32, rounding may give negative variances.
        factor = self._to_experts(kernel, coefficients).astype("float64")
        return type(self).from_covariance(np.tensordot(factor, factor, axes=(2, 2)))

    def _to_experts(self, kernel, coefficients):
        """Return the factor of the experts' pre-activations (J, E, R)."""
        maps = np.asarray(coefficients)[:, :, None, None] * np.asarray(kernel)
        return np.tensordot(maps, self.factor, axes=((0, 3), (0, 1)))

    def draw(self, n, seed, dtype=None):
        """Return independent draws (n, I, D)."""
        dtype = dtype or keras.config.floatx()
        noise = keras.random.normal((n, self.rank), dtype=dtype, seed=seed)
        drawn = ops.matmul(noise, ops.cast(self._columns, dtype))
        return ops.reshape(drawn, (-1, self.inputs, self.dim))

    def describe(self):
        return f"Gaussian of mean zero on x, {self.inputs} capsules of {self.dim} dimensions"

    def __repr__(self):
        return f"CentredGaussian(inputs={self.inputs}, dim={self.dim}, rank={self.rank})"


# The arc roughly halves each time, so it is then narrower than rounding.
_MOST_SHRINKS = 100


def expert_log_weight(kernel, coefficients, units=CAPSULES, hidden_bias=None):
    """Return the function x (N, I, D) -> log w(x) = -F(x) (N,) in nats, of a product of experts."""
    kernel = at_least_float32(kernel)
    if isinstance(coefficients, Router):
        if hidden_bias is not None:
            raise ValueError("`hidden_bias` must be None beside a Router. Received: both")
        return lambda x: -free_energy(coefficients.route(x).z, units)
    coefficients = ops.cast(coefficients, kernel.dtype)
    if tuple(coefficients.shape) != tuple(kernel.shape[:2]):
        raise ValueError(
            f"`coefficients` must be a Router or of shape {tuple(kernel.shape[:2])}. "
            f"Received: shape {tuple(coefficients.shape)}"
        )
    inputs, experts, out_dim, in_dim = kernel.shape
    # With coefficients that do not depend on x, all maps form one matrix.
    weighted = ops.transpose(coefficients[:, :, None, None] * kernel, (1, 2, 0, 3))
    maps = DenseMaps(ops.reshape(weighted, (experts * out_dim, inputs * in_dim)))
    bias = 0.0 if hidden_bias is None else ops.cast(hidden_bias, kernel.dtype)

    def log_weight(x):
        z = maps.up(None, ops.reshape(x, (-1, inputs * in_dim)))
        return -free_energy(ops.reshape(z, (-1, experts, out_dim)) + bias, units)

    return log_weight


def block_resampling(base, log_weight, blocks):
    """Metropolis transition that redraws `blocks` random input capsules from the base."""
    if not hasattr(base, "draw_capsules"):
        raise ValueError(
            "`base` must have independent input capsules: use elliptical_slice. "
            f"Received: base={base!r}"
        )
    if whole_number("blocks", blocks) > base.inputs:
        raise ValueError(
            f"`blocks` must be at most {base.inputs}, the input capsules. Received: blocks={blocks}"
        )

    def step(x, values, beta, seed):
        which, fresh, accept = streams(seed, 3)
        # Redraw the capsules whose random rank is below `blocks`, the same in all chains.
        rank = ops.argsort(keras.random.uniform((base.inputs,), seed=which))
        drawn = base.draw_capsules(ops.shape(x)[0], blocks, fresh, x.dtype)
        drawn = ops.take(drawn, ops.minimum(rank, blocks - 1), axis=1)
        proposal = ops.where((rank < blocks)[None, :, None], drawn, x)
        proposed = log_weight(proposal)
        bound = _log_uniform(values, accept)
        accepted = bound < log_acceptance(proposed, values, beta)
        return _chosen(accepted, proposal, x), ops.where(accepted, proposed, values)

    return step


def log_acceptance(proposed, values, beta):
    """Return log (w'/w)^b, the Metropolis ratio of a proposal that leaves P_0 invariant."""
    return beta * (proposed - values)


def elliptical_slice(base, log_weight):
    """Elliptical slice sampling (Murray et al., 2010) for a zero-mean Gaussian base."""
    if not getattr(base, "is_gaussian", True):
        raise ValueError(
            "`base` must be a Gaussian of mean zero, or the `latent` of a squashed one. "
            f"Received: base={base!r}"
        )

    def step(x, values, beta, seed):
        fresh, height, angle = streams(seed, 3)
        other = base.draw(ops.shape(x)[0], fresh, x.dtype)
        bound = beta * values + _log_uniform(values, height)

        def angles(count):
            pair = angle.pair
            counted = StatelessSeed(pair[0], pair[1] + ops.cast(count, pair.dtype))
            return keras.random.uniform(ops.shape(values), dtype=values.dtype, seed=counted)

        first = 2 * math.pi * angles(0)

        def body(count, theta, low, high, now, at, done):
            turned = [_like(f(theta), x) for f in (ops.cos, ops.sin)]
            proposal = turned[0] * x + turned[1] * other
            proposed = log_weight(proposal)
            accepted = ops.logical_and(ops.logical_not(done), beta * proposed >= bound)
            now, at = _chosen(accepted, proposal, now), ops.where(accepted, proposed, at)
            low, high = ops.where(theta < 0, theta, low), ops.where(theta < 0, high, theta)
            theta = low + (high - low) * angles(count + 1)
            return count + 1, theta, low, high, now, at, ops.logical_or(done, accepted)

        def unfinished(count, *rest):
            return ops.logical_and(count < _MOST_SHRINKS, ops.logical_not(ops.all(rest[-1])))

        nowhere = ops.zeros_like(values) > 0
        begin = (ops.zeros((), "int32"), first, first - 2 * math.pi, first, x, values, nowhere)
        *_, now, at, _ = ops.while_loop(unfinished, body, begin)
        return now, at

    return step


def _log_uniform(values, seed):
    """Return log u (N,) with u uniform on `[0, 1)`."""
    return ops.log(keras.random.uniform(ops.shape(values), dtype=values.dtype, seed=seed))


def _like(chains, x):
    """Reshape numbers per chain (N,) so that they multiply states."""
    return ops.reshape(chains, (-1,) + (1,) * (len(x.shape) - 1))


def _chosen(accepted, proposal, x):
    return ops.where(_like(accepted, x), proposal, x)


def exchange_log_odds(free_energy, x, betas, odd=False):
    """Return the partner (T,) of each temperature, and the log odds (T, N) of the exchange."""
    x = ops.convert_to_tensor(x)
    number = x.shape[0]
    shift = ops.cast(odd, "int32")
    index = ops.arange(number, dtype="int32")
    partner = index + 1 - 2 * ((index + shift) % 2)
    partner = ops.where((partner < 0) | (partner >= number), index, partner)
    betas = ops.broadcast_to(ops.cast(betas, x.dtype)[:, None], ops.shape(x)[:2])
    own, swapped = free_energy(x, betas), free_energy(x, ops.take(betas, partner, axis=0))
    # Log odds: (F_b(x) + F_b'(x')) - (F_b'(x) + F_b(x')).
    gain = own - swapped
    return partner, gain + ops.take(gain, partner, axis=0)


def replica_exchange(free_energy, x, betas, seed, odd=False):
    """Metropolis exchange of neighbouring replicas, which keeps their joint distribution.

    Call it with `odd` false and true in turn.

    Args:
        free_energy: Function that maps x and a tensor (T, N) of inverse temperatures to F (T, N).
        x: Tensor (T, N, ...), N chains at each of T temperatures.
        betas: Tensor (T,), inverse temperatures.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.
        odd: bool or scalar tensor. False pairs `(0, 1), (2, 3), ...`; true pairs `(1, 2), ...`

    Returns:
        Tensor of the shape of `x`; bool tensor (T, N), true for replicas that moved.

    Example:

    >>> x = np.array([[1.0], [0.0]])
    >>> moved, has_moved = replica_exchange(lambda x, b: b * x, x, np.array([1.0, 0.5]), seed=0)
    >>> np.asarray(moved).ravel().tolist()
    [0.0, 1.0]

    Reference:

    - [Swendsen & Wang, 1986](https://doi.org/10.1103/PhysRevLett.57.2607)
    - [Desjardins et al., 2010](https://proceedings.mlr.press/v9/desjardins10a.html), with RBMs
    """
    x = ops.convert_to_tensor(x)
    partner, log_odds = exchange_log_odds(free_energy, x, betas, odd)
    index = ops.arange(x.shape[0], dtype="int32")
    u = keras.random.uniform(ops.shape(log_odds), dtype=log_odds.dtype, seed=seed)
    # Both replicas of a pair share one random number.
    u = ops.take(u, ops.minimum(index, partner), axis=0)
    has_partner = ops.not_equal(partner, index)[:, None]
    accepted = has_partner & (u < ops.exp(ops.minimum(log_odds, 0)))
    shape = (*ops.shape(accepted), *(1 for _ in x.shape[2:]))
    return ops.where(ops.reshape(accepted, shape), ops.take(x, partner, axis=0), x), accepted


def hidden_chain(harmonium, y, steps, seed):
    """Run Gibbs steps on hidden states y (B, E), like `gibbs_chain` from the hidden side."""
    visible, kernel = plain_units(harmonium.visible), harmonium.maps.kernel
    if len(kernel.shape) != 2 or not isinstance(visible, GaussianUnits):
        raise ValueError(
            "`harmonium` must have DenseMaps and GaussianUnits as its visible side. Received: "
            f"{type(harmonium.maps).__name__}, {type(visible).__name__}"
        )
    away = harmonium.visible_bias - offset_of(harmonium.visible, kernel.dtype)
    field = harmonium.hidden_bias + ops.matmul(kernel, away)
    gram = ops.matmul(kernel, ops.transpose(kernel))
    # Zero eigenvalues (more hidden than visible neurons) may round to negative ones.
    variances, axes = ops.linalg.eigh(gram)
    root = ops.sqrt(ops.maximum(variances, 0))[:, None] * ops.transpose(axes)
    noises, draws = streams(seed, 2)

    def step(i, y):
        noise = keras.random.normal(ops.shape(y), dtype=gram.dtype, seed=noises.later(i))
        z = field + ops.matmul(y, gram) + ops.matmul(noise, root)
        return harmonium.hidden.sample(z, draws.later(i))

    return ops.fori_loop(0, steps, step, ops.cast(y, gram.dtype))
