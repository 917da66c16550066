"""Reference distributions P_0 of the visible capsules, with P(x) = P_0(x) w(x)/Z."""

import keras
import numpy as np
from keras import ops
from scipy.integrate import quad
from scipy.special import gammaln

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.numerics import direction, real_number, whole_number
from keras_capsule_poe.core.randomness import streams
from keras_capsule_poe.core.squash import squash


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

    def given_experts(self, z, kernel, coefficients, seed):
        """Draw x from the reference distribution given the experts' pre-activations z.

        The importance weight depends on z alone. So x is a draw from P if z is a draw from P.

        Args:
            z: Tensor (N, J, E), drawn from P or from `of_experts`.
            kernel, coefficients: See `of_experts`.
            seed: int, scalar integer tensor or `keras.random.SeedGenerator`.

        Returns:
            Tensor (N, I, D).
        """
        z = ops.convert_to_tensor(z)
        # z = B u with u ~ N(0, 1): project a draw of u onto the solutions of z = B u.
        up = self._to_experts(kernel, coefficients).reshape(-1, self.rank).astype("float64")
        back = np.linalg.pinv(up, rcond=1e-7)
        up, back = (ops.convert_to_tensor(array.T, dtype=z.dtype) for array in (up, back))
        u = keras.random.normal((ops.shape(z)[0], self.rank), dtype=z.dtype, seed=seed)
        z = ops.reshape(z, (-1, up.shape[1]))
        u = u + ops.matmul(z - ops.matmul(u, up), back)
        drawn = ops.matmul(u, ops.cast(self._columns, z.dtype))
        return ops.reshape(drawn, (-1, self.inputs, self.dim))

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
