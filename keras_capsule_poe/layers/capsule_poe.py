"""Product of expert capsules: routing, free energy and contrastive divergence."""

import keras
from keras import ops

from keras_capsule_poe.functions.divergence import (
    chain_step,
    contrastive_divergence,
    decoder_rule,
)
from keras_capsule_poe.functions.units import CapsuleUnits, free_energy
from keras_capsule_poe.layers.routing_layer import RoutingLayer


@keras.saving.register_keras_serializable("keras_capsule_poe")
class CapsulePoE(RoutingLayer):
    """Product of expert capsules: a `RoutingLayer` with an energy.

    `F(x) = -sum_j log(1 + |z_j|^2)` is the free energy of the visible capsules in nats, with the
    pre-activations `z_j = b_j + sum_i c_ij W_ij x_i`. The length `|squash(z_j)|` is the
    probability that expert j is on. The contrastive divergence gradient is computed without
    autodiff. For another energy, override `units` (experts) and `visible_units` (inputs).

    Without `use_bias` the model has sign symmetry, F(-x) = F(x): an image and its negative are
    equally probable. `use_bias` breaks the symmetry.

    Args:
        capsules: int, J, number of experts.
        dim: int, E, dimension of an expert.
        iterations: int, routing updates of the coupling coefficients.
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

    def __init__(self, capsules, dim, iterations=3, kernel_initializer=None, **kwargs):
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.RandomNormal(stddev=1e-3)
        super().__init__(
            capsules,
            dim,
            iterations=iterations,
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

    def log_odds(self, inputs):
        """Return the log-odds (B, J) that each expert is on, in nats."""
        return self.units.log_odds(self.route(inputs).z)

    def probability(self, inputs):
        """Return the probability (B, J) that each expert is on."""
        return self.units.probability(self.route(inputs).z)

    def free_energy(self, inputs):
        """Return the free energy (B,) of visible capsules (B, I, D), routed per image, in nats."""
        return free_energy(self.route(inputs).z, self.units)

    def contrastive_divergence(self, inputs, **options):
        """Return the `functions.Divergence` of squashed primary capsules (B, I, D).

        The options are `steps`, `seed` and `chains` of `functions.contrastive_divergence`. All
        Gibbs steps of a chain use the coupling coefficients of its start.
        """
        router = self.router()
        return contrastive_divergence(
            router.maps, inputs, router, self.units, self.visible_units, **options
        )

    def decoder_divergence(self, inputs, z, conditional=False):
        """Return one update of the decoder rule, see `functions.decoder_rule`.

        Args:
            inputs: Tensor (B, J, E), squashed expert capsules of the data.
            z: Tensor (B, I, D), primary capsules of the data before the squash.
            conditional: bool, use the experts of the data in the model term, too.
        """
        router = self.router()
        return decoder_rule(
            router.maps, inputs, z, router, self.units, self.visible_units, conditional
        )

    def mean_field_step(self, inputs):
        """Return the visible capsules (B, I, D) after one mean-field Gibbs step from `inputs`."""
        router = self.router()
        return chain_step(router.maps, inputs, router, self.units, self.visible_units)

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
