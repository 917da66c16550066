"""Product of expert capsules: routing, free energy and contrastive divergence."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Identifier, Tensor
from keras_capsule_poe.core.arguments import Configured
from keras_capsule_poe.core.divergence import chain_step, contrastive_divergence, decoder_rule
from keras_capsule_poe.core.numerics import BLOCK, at_least_float32, at_once, direction
from keras_capsule_poe.core.routing import refuse_route
from keras_capsule_poe.core.sharding import over_images
from keras_capsule_poe.core.units import CAPSULES, CapsuleUnits, check_units, free_energy
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.former_names import with_former_names, without_removed
from keras_capsule_poe.layers.routing import RoutingLayer


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class CapsulePoE(RoutingLayer):
    """Product of expert capsules: a `RoutingLayer` with an energy.

    `F(x) = -sum_j log(1 + |z_j|^2)` is the free energy of the visible capsules in nats, with the
    pre-activations `z_j = a_j + sum_i c_ij W_ij x_i`. The length `|squash(z_j)|` is the
    probability that expert j is on. The contrastive divergence gradient is computed without
    autodiff. For another energy, override `units` (experts) and `visible_units` (inputs). For other
    coupling coefficients, override `router_class`. Training, encoding and samples use them alike.

    Without `use_bias` the model has sign symmetry, F(-x) = F(x): an image and its negative are
    equally probable. `use_bias` breaks the symmetry.

    Args:
        capsules: int, J, number of experts.
        dim: int, E, dimension of an expert.
        routing_iterations: int, routing iterations as Sabour et al. count them.
        kernel_initializer: None is normal with standard deviation 0.001. Initial weights that
            are not small compared with the learned maps add noise to the samples.
        kernel_regularizer: None, `keras.regularizers.L1`, `L2` or `L1L2`.
        **kwargs: Arguments of `RoutingLayer`.

    Call arguments:
        inputs: Tensor (B, I, D), squashed primary capsules.

    Returns:
        Tensor (B, J, E), squashed experts.

    Raises:
        ValueError: As `RoutingLayer`; also for shared weights or another regularizer.

    Example:
        >>> experts = CapsulePoE(capsules=10, dim=16)
        >>> x = keras.random.uniform((2, 6, 8), maxval=0.3, seed=0)
        >>> experts(x).shape, experts.free_energy(x).shape
        (TensorShape([2, 10, 16]), TensorShape([2]))
        >>> experts.contrastive_divergence(x).gradient.shape
        TensorShape([6, 10, 16, 8])

    Reference:
        [Hauser, 2019](https://arxiv.org/abs/1907.11643).
    """

    units = CapsuleUnits()
    visible_units = CapsuleUnits()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        refuse_route(cls, "Experts must say how they route in `router_class` or `router`")

    def __init__(
        self,
        capsules: int,
        dim: int,
        *,
        routing_iterations: int = 4,
        kernel_initializer: Identifier = None,
        **kwargs: Any,
    ) -> None:
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.RandomNormal(stddev=1e-3)
        super().__init__(
            capsules,
            dim,
            routing_iterations=routing_iterations,
            kernel_initializer=kernel_initializer,
            **kwargs,
        )
        if self.shared_weights:
            raise ValueError(
                "`shared_weights` is for a RoutingLayer: an energy needs its number of inputs. "
                "Received: shared_weights=True"
            )
        known = (type(None), keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
        if not isinstance(self.kernel_regularizer, known):
            raise ValueError(
                "`kernel_regularizer` must be None, L1, L2 or L1L2, whose gradients are known "
                f"without autodiff. Received: kernel_regularizer={self.kernel_regularizer!r}"
            )

    def check_units(self):
        """Raise `BadUse` unless the methods of own `units` belong together."""
        if type(self.units) is not CapsuleUnits:
            check_units(self.units)

    def check_squash(self, name):
        """Raise `BadUse` unless the units of primary capsules squash as `PrimaryCapsules` does."""
        units, z = getattr(self, name), np.eye(3, dtype="float32")
        found = [ops.convert_to_numpy(each.mean(z)) for each in (units, CAPSULES)]
        if type(units) is not CapsuleUnits and not np.allclose(*found, atol=1e-5):
            raise BadUse(
                f"`{name}` must have the squash of `PrimaryCapsules` as its mean: the primary "
                f"capsules are squashed before. Received: {type(units).__name__}"
            )

    def log_odds(self, inputs):
        """Return the log-odds (B, J) that each expert is on, in nats."""
        return self.units.log_odds(self.route(inputs).z)

    def probability(self, inputs: Tensor) -> Tensor:
        """Return the probability (B, J) that each expert is on."""
        return self.units.probability(self.route(inputs).z)

    def free_energy(self, inputs: Tensor) -> Tensor:
        """Return the free energy (B,) of visible capsules (B, I, D), routed per image, in nats."""
        return free_energy(self.route(inputs).z, self.units)

    def sides(self):
        """Return the arguments `maps`, `routing`, `hidden` and `visible` of Gibbs chains."""
        router = self.router()
        sides = {"hidden": self.units, "visible": self.visible_units}
        return {"maps": router.maps, "routing": router, **sides}

    def contrastive_divergence(self, inputs, **options):
        """Return the `functions.Divergence` of squashed primary capsules (B, I, D).

        The options are `cd_steps`, `seed` and `chains` of `functions.contrastive_divergence`. All
        Gibbs steps of a chain use the coupling coefficients of its start.
        """
        return contrastive_divergence(x=inputs, **self.sides(), **options)

    def decoder_divergence(self, inputs, z, conditional=False):
        """Return one update of the decoder rule, see `functions.decoder_rule`.

        Args:
            inputs: Tensor (B, J, E), squashed expert capsules of the data.
            z: Tensor (B, I, D), primary capsules of the data before the squash.
            conditional: bool, use the experts of the data in the model term, too.
        """
        sides = self.sides()
        return decoder_rule(
            x=inputs, z=z, units=sides.pop("hidden"), conditional=conditional, **sides
        )

    def mean_field_step(self, inputs):
        """Return the visible capsules (B, I, D) after one mean-field Gibbs step from `inputs`."""
        return chain_step(x=inputs, **self.sides())

    def ascent(self, divergence):
        """Return the update of the maps: the gradient of log P minus that of the regularizer."""
        gradient = divergence.gradient
        return gradient - ops.cast(self.regularization_gradient(), gradient.dtype)

    @property
    def learned(self):
        """Trained weights: the maps, and the bias if there is one."""
        return [self.kernel, self.bias] if self.use_bias else [self.kernel]

    def ascents(self, divergence, bias_rate=1.0):
        """Return the updates of the `learned` weights. `bias_rate` scales that of the bias."""
        ascents = [self.ascent(divergence)]
        return [*ascents, bias_rate * divergence.hidden_bias] if self.use_bias else ascents

    def regularization_gradient(self):
        """Return the gradient of the regularizer, l1 sign(W) + 2 l2 W."""
        gradient = ops.zeros_like(self.kernel.value)
        l1 = getattr(self.kernel_regularizer, "l1", None)
        l2 = getattr(self.kernel_regularizer, "l2", None)
        if l1:
            gradient = gradient + float(l1) * ops.sign(self.kernel)
        if l2:
            gradient = gradient + 2 * float(l2) * self.kernel
        return gradient


@keras.saving.register_keras_serializable("keras_capsule_poe")
class Whitening(keras.layers.Layer):
    """Squash of expert capsules with one whitening transform for each expert.

    `x_j = |squash(z_j)| n_j`, where n_j is the direction of `A_j (z_j - m_j)`. After `adapt`, m_j
    and `A_j = C_j^(-1/2)` whiten the expert's own images, so their orientations cover the sphere
    evenly. The length stays the probability that the expert is on. Before `adapt` the layer is
    the plain squash.

    Call arguments:
        z: Tensor (B, J, E), experts before the squash.

    Returns:
        Tensor (B, J, E), of lengths below one.

    Example:
        >>> whitening = Whitening()
        >>> z = np.random.default_rng(0).normal(size=(100, 2, 3)).astype("float32")
        >>> tuple(whitening(z).shape)
        (100, 2, 3)
        >>> whitening.adapt([z[:50, 0], z[50:, 1]])
    """

    # Those of the experts, which a `CapsuleEncoder` sets.
    units = CAPSULES

    def build(self, input_shape):
        capsules, dim = input_shape[1:]
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={1: capsules, 2: dim})
        self.center = self.add_weight(
            shape=(capsules, dim), initializer="zeros", trainable=False, name="center"
        )
        self.whitening = self.add_weight(
            shape=(capsules, dim, dim),
            initializer=lambda shape, dtype=None: ops.broadcast_to(
                ops.eye(dim, dtype=dtype), shape
            ),
            trainable=False,
            name="whitening",
        )

    def call(self, z):
        z = at_least_float32(z)
        centred = z - ops.cast(self.center, z.dtype)
        turned = ops.einsum("jef,bjf->bje", ops.cast(self.whitening, z.dtype), centred)
        x = self.units.probability(z)[..., None] * direction(turned)
        return ops.cast(x, self.compute_dtype)

    def is_identity(self):
        """Return ones for the experts without a fitted transform and zeros for the others, (J,)."""
        moved = ops.any(ops.not_equal(self.center, 0), axis=1)
        turned = ops.any(ops.not_equal(self.whitening, ops.eye(self.center.shape[1])), axis=(1, 2))
        return ops.cast(ops.logical_not(ops.logical_or(moved, turned)), "float32")

    def adapt(self, explained, causes=None, floor=1e-6):
        """Fit the whitening of each expert to the images that it explains.

        Args:
            explained: List of J arrays (N_j, E), pre-squash capsules of the images whose most
                probable expert is j. An expert with fewer than 2 E rows keeps its transform.
            causes: Function from an expert's index to an array (n, K), inputs of its first n rows.
                The whitened axes are rotated to follow their covariance with it. None: no rotation.
            floor: float, smallest variance of a direction, relative to the largest.

        Raises:
            ValueError: If there are not J arrays, or if a value is not finite.
        """
        center, whitening = np.array(self.center), np.array(self.whitening)
        if len(explained) != len(center):
            raise ValueError(
                f"`adapt` needs one array for each of {len(center)} experts. "
                f"Received: {len(explained)} arrays"
            )
        for expert, z in enumerate(explained):
            z = np.asarray(z, "float64")
            if not np.isfinite(z).all():
                raise ValueError(
                    f"`adapt` needs finite capsules. Received: NaN or infinity for expert {expert}"
                )
            if len(z) < 2 * center.shape[1]:
                continue
            variances, own = np.linalg.eigh(np.atleast_2d(np.cov(z.T)))
            if not variances[-1] > 0:
                continue
            variances = np.maximum(variances, floor * variances[-1])
            center[expert] = z.mean(axis=0)
            whitening[expert] = (own / np.sqrt(variances)) @ own.T
            if causes is not None:
                x = causes(expert)
                whitening[expert] = shared_axes(x, z[: len(x)]).T @ whitening[expert]
        self.center.assign(center)
        self.whitening.assign(whitening)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)

    @classmethod
    def from_config(cls, config):
        return super().from_config(without_removed(config))


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ExpertFrames(Whitening):
    """`Whitening` under its former name, which names the weights in saved files.

    Example:
        >>> isinstance(ExpertFrames(), Whitening)
        True
    """


def shared_axes(causes, z):
    """Return axes (E, E) of z (N, E) sorted by covariance with `causes` (N, K), as in PLS."""
    z = np.asarray(z, "float64")
    shared = (np.asarray(causes, "float64") - np.mean(causes, axis=0)).T @ (z - z.mean(axis=0))
    axes = np.linalg.svd(shared.T @ shared)[0]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return axes * np.sign(largest)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class GaussianMixtures(Configured, keras.layers.Layer):
    """Sampler of G Gaussian mixtures: y = m_gk + F_gk noise, component k of group g.

    If `tied`, the components of a group share one factor F_g.
    """

    def __init__(self, groups, components, dim, rank=None, tied=False, **kwargs):
        super().__init__(**kwargs)
        self.groups, self.components, self.dim, self.rank = groups, components, dim, rank or dim
        self.tied = tied

    def build(self, input_shape=None):
        def statistic(name, components, *shape, start="zeros"):
            shape = (self.groups, components, *shape)
            return self.add_weight(shape=shape, initializer=start, trainable=False, name=name)

        self.weights_of = statistic("weights", self.components, start="ones")
        self.means = statistic("means", self.components, self.dim)
        covariances = 1 if self.tied else self.components
        self.factors = statistic("factors", covariances, self.dim, self.rank)
        self.built = True

    @classmethod
    def of(cls, weights, means, factors, **kwargs):
        """Return a layer with weights (G, K), means (G, K, E) and factors (G, K or 1, E, R)."""
        _, covariances, _, rank = np.shape(factors)
        layer = cls(*np.shape(means), rank=rank, tied=covariances < np.shape(means)[1], **kwargs)
        layer.build()
        layer.set_weights([weights, means, factors])
        return layer

    def call(self, noise, choice, group):
        # Draw in slices: the factors of 10,000 codes at once would take 0.8 GB.
        fitting = max(1, at_once(BLOCK) // (self.dim * self.rank))
        arrays = [noise, choice, group]
        (drawn,), _ = over_images(self._some, arrays, fitting, [(self.dim,)], [])
        return drawn

    def group_of(self, choice):
        """Return the group that each `choice` (N,) in [0, 1) selects, by their total weights."""
        weights = ops.sum(self.weights_of, axis=-1)
        return _chosen(ops.broadcast_to(weights, (ops.shape(choice)[0], self.groups)), choice)

    def _some(self, noise, choice, group):
        component = _chosen(ops.take(self.weights_of, group, axis=0), choice)
        index = group * self.components + component
        means = ops.reshape(self.means, (-1, self.dim))
        factors = ops.reshape(self.factors, (-1, self.dim, self.rank))
        factors = ops.take(factors, group if self.tied else index, axis=0)
        return [ops.take(means, index, axis=0) + ops.einsum("ner,nr->ne", factors, noise)], []


def _chosen(weights, choice):
    """Return indices (N,) that are as likely as weights (N, K) say, of `choice` (N,) in [0, 1)."""
    reached = ops.cumsum(weights, axis=-1) / ops.sum(weights, axis=-1, keepdims=True)
    index = ops.sum(ops.cast(reached <= choice[:, None], "int32"), axis=-1)
    return ops.minimum(index, weights.shape[1] - 1)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class SharedCapsules(Configured, keras.layers.Layer):
    """Capsules that all images share: z = V (r - m) codes the residual r (I, D) of an image.

    The residual is what the experts leave. Shared capsules do not compete. The rows of V are the
    principal directions of r, orthonormal: the maximum of the likelihood for experts that are
    linear and Gaussian ([Tipping & Bishop, 1999](https://doi.org/10.1111/1467-9868.00196)). The
    mean of a shared code is quadratic in the direction of the capsule that wins the image. If
    several capsules are long, it is the mean of all, weighted by their squared lengths.

    Args:
        capsules: int, S, number of shared capsules.
        dim: int, E, dimensions of each, and of an expert.
        experts: int, J.
    """

    def __init__(self, capsules, dim, experts, **kwargs):
        super().__init__(**kwargs)
        self.capsules, self.dim, self.experts = capsules, dim, experts

    def build(self, input_shape):
        def statistic(name, *shape):
            return self.add_weight(shape=shape, initializer="zeros", trainable=False, name=name)

        inputs = tuple(input_shape[1:])
        self.mean = statistic("mean", *inputs)
        self.kernel = statistic("kernel", self.capsules, self.dim, *inputs)
        # Of the codes of the images that each expert wins.
        size, terms = self.capsules * self.dim, quadratic(np.zeros((1, self.dim))).shape[1]
        self.means = statistic("means", self.experts, terms, size)
        self.built = True

    def call(self, residuals):
        """Return codes (B, S, E) of residuals (B, I, D)."""
        return ops.einsum("seid,bid->bse", self.kernel, residuals - self.mean)

    def decode(self, codes):
        """Return residuals (B, I, D) of codes (B, S, E)."""
        return self.mean + ops.einsum("seid,bse->bid", self.kernel, codes)

    def expected(self, capsules):
        """Return the mean of the codes (B, S, E) of images with capsules (B, J, E)."""
        counted = ops.sum(ops.square(at_least_float32(capsules)), axis=-1, keepdims=True)
        share = counted / ops.maximum(ops.sum(counted, axis=1, keepdims=True), 1e-30)
        terms = share * quadratic(direction(capsules))
        means = ops.reshape(self.means, (-1, self.capsules * self.dim))
        found = ops.reshape(terms, (-1, math.prod(terms.shape[1:]))) @ means
        return ops.reshape(found, (-1, self.capsules, self.dim))


# A quadratic form in so many dimensions; dimensions of codes are sorted by what they explain.
SQUARED = 16


def quadratic(directions):
    """Return 1, the coordinates and their products, (..., T), of directions (..., E)."""
    first = directions[..., :SQUARED]
    rows, columns = np.triu_indices(first.shape[-1])
    products = ops.take(first, rows, axis=-1) * ops.take(first, columns, axis=-1)
    return ops.concatenate([ops.ones_like(first[..., :1]), directions, products], axis=-1)
