"""A product of expert capsules: routing, energy and the hand-derived update."""

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
    """Expert capsules that model their inputs as a product: a `RoutingLayer` with an energy.

    E(x, on) = -sum_j on_j log |z_j|^2, so |x_j| is the probability that expert j is on, and
    F(x) = -sum_j log(1 + |z_j|^2) is the free energy of the visible capsules. The layer gives
    the contrastive-divergence gradient of its maps, derived by hand. Other energies need only a
    subclass with other `units` (the experts') and `visible_units` (the inputs').

    With `use_bias` capsules are affine, z_j = b_j + sum_i c_ij W_ij x_i. Without, F(-x) = F(x):
    inputs and their negatives are equally probable, and W_j and -W_j are the same expert.

    Args:
        capsules: int, J, the number of experts.
        dim: int, E, the size of an expert.
        iterations: int, agreement updates of the routing.
        kernel_initializer: Small against the learned maps, or samples stay noise.
        kernel_regularizer: `None` or `keras.regularizers.L1`, `L2` or `L1L2`, whose gradients
            are known without autodiff.
        **kwargs: `RoutingLayer` arguments.

    Call arguments:
        inputs: Tensor (B, I, D), squashed primary capsules.

    Returns:
        Tensor (B, J, E), squashed experts; their lengths are probabilities.

    Raises:
        ValueError: As `RoutingLayer`, or if the regulariser's gradient is not known.

    Examples:

    >>> experts = CapsulePoE(capsules=10, dim=16)
    >>> x = keras.random.uniform((2, 6, 8), maxval=0.3, seed=0)
    >>> experts(x).shape, experts.free_energy(x).shape
    (TensorShape([2, 10, 16]), TensorShape([2]))
    >>> experts.contrastive_divergence(x).gradient.shape
    TensorShape([6, 10, 16, 8])

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643)
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
        """Log-odds that each expert is on, (B, J), nats."""
        return self.units.log_odds(self.route(inputs).z)

    def probability(self, inputs):
        """Probability that each expert is on, (B, J)."""
        return self.units.probability(self.route(inputs).z)

    def free_energy(self, inputs):
        """Free energy F of the visible capsules, (B,), nats, at their own routing."""
        return free_energy(self.route(inputs).z, self.units)

    def contrastive_divergence(self, inputs, **options):
        """Contrastive divergence mixed by dynamic routing (Algorithm 1).

        Args:
            inputs: Tensor (B, I, D), squashed primary capsules.
            **options: `steps`, `seed`, `chains`, see `functions.contrastive_divergence`.

        Returns:
            `functions.Divergence`.
        """
        router = self.router()
        return contrastive_divergence(
            router.maps, inputs, router, self.units, self.visible_units, **options
        )

    def decoder_divergence(self, inputs, z, conditional=False):
        """One step of the decoder rule, where this layer decodes.

        Args:
            inputs: Tensor (B, J, E), squashed expert capsules of the data.
            z: Tensor (B, I, D), primary capsules of the data, before the squash.
            conditional: bool, whether the model's term keeps the data's experts.

        Returns:
            `functions.Divergence`, see `functions.decoder_rule`.
        """
        router = self.router()
        return decoder_rule(
            router.maps, inputs, z, router, self.units, self.visible_units, conditional
        )

    def mean_field_step(self, inputs):
        """The visible capsules after one pass of the chain: up and down with one routing.

        Nothing is drawn at random: both sides send on their means.

        Args:
            inputs: Tensor (B, I, D), squashed primary capsules.

        Returns:
            Tensor (B, I, D), squashed.
        """
        router = self.router()
        return chain_step(router.maps, inputs, router, self.units, self.visible_units)

    def ascent(self, divergence):
        """The direction in which training moves the maps: up log P, down the regulariser."""
        gradient = divergence.gradient
        return gradient - ops.cast(self.regularization_gradient(), gradient.dtype)

    @property
    def learned(self):
        """What training moves: the maps, and the bias if there is one."""
        return [self.kernel, self.bias] if self.use_bias else [self.kernel]

    def ascents(self, divergence, bias_rate=1.0):
        """The directions in which training moves what is `learned`.

        Nothing decays the bias: no votes stand behind it that would have to outweigh noise.

        Args:
            divergence: `functions.Divergence`.
            bias_rate: float, the learning rate of the bias over that of the maps.
        """
        ascents = [self.ascent(divergence)]
        return [*ascents, bias_rate * divergence.hidden_bias] if self.use_bias else ascents

    def regularization_gradient(self):
        """Gradient of the regulariser in the maps, by hand: l1 sign(W) + 2 l2 W; or zero."""
        gradient = ops.zeros_like(self.kernel.value)
        l1 = getattr(self.kernel_regularizer, "l1", None)
        l2 = getattr(self.kernel_regularizer, "l2", None)
        if l1:
            gradient = gradient + float(l1) * ops.sign(self.kernel)
        if l2:
            gradient = gradient + 2 * float(l2) * self.kernel
        return gradient
