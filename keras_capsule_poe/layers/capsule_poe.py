"""A product of expert capsules: routing, energy and the hand-derived update."""

import keras
from keras import ops

from keras_capsule_poe.functions import energy, implementations
from keras_capsule_poe.functions.divergence import backproject
from keras_capsule_poe.functions.squash import squash
from keras_capsule_poe.layers.routing_layer import RoutingLayer


@keras.saving.register_keras_serializable("keras_capsule_poe")
class CapsulePoE(RoutingLayer):
    """Expert capsules that model their inputs as a product: a `RoutingLayer` with an energy.

    E(x, on) = -sum_j on_j log |z_j|^2, so |x_j| is the probability that expert j is on, and
    F(x) = -sum_j log(1 + |z_j|^2) is the free energy of the visible capsules. The layer gives
    the contrastive-divergence gradient of its maps, derived by hand.

    Args:
        capsules: int, J, the number of experts.
        dim: int, E, the size of an expert.
        iterations: int, agreement updates of the routing.
        scale: float, what the routing coefficients sum to; `None`: the mean coefficient is one
            with `normalize="inputs"`, the sum is one with `"outputs"`. A change of units that
            makes a learning rate of about 0.01 right.
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

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643)
    """

    def __init__(self, capsules, dim, iterations=3, scale=None, kernel_initializer=None, **kwargs):
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.RandomNormal(stddev=1e-3)
        super().__init__(
            capsules,
            dim,
            iterations=iterations,
            scale=scale,
            kernel_initializer=kernel_initializer,
            **kwargs,
        )
        known = (type(None), keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
        if not isinstance(self.kernel_regularizer, known):
            raise ValueError(
                "`kernel_regularizer` must be None, L1, L2 or L1L2, whose gradients are known "
                f"without autodiff. Received: kernel_regularizer={self.kernel_regularizer!r}"
            )

    def log_odds(self, inputs):
        """Log-odds that each expert is on, (B, J), nats."""
        return energy.log_odds(self.route(inputs).z)

    def probability(self, inputs):
        """Probability that each expert is on, (B, J)."""
        return energy.probability(self.route(inputs).z)

    def free_energy(self, inputs):
        """Free energy F of the visible capsules, (B,), nats, at their own routing."""
        return energy.free_energy(self.route(inputs).z)

    def contrastive_divergence(self, inputs, activation_prior=None):
        """One step of contrastive divergence mixed by dynamic routing (Algorithm 1).

        Args:
            inputs: Tensor (B, I, D), squashed primary capsules.
            activation_prior: Overrides the layer's, while it is annealed.

        Returns:
            `Divergence`, see `keras_capsule_poe.functions.encoder_divergence`.
        """
        step = implementations.get(self.implementation).routed_encoder_divergence
        kernel = ops.cast(self.kernel, self.compute_dtype)
        return step(inputs, kernel, **self.routing_options(activation_prior))

    def decoder_divergence(self, inputs, z, conditional=False):
        """One step of the decoder rule, where this layer decodes.

        Args:
            inputs: Tensor (B, J, E), squashed expert capsules of the data.
            z: Tensor (B, I, D), primary capsules of the data, before the squash.
            conditional: bool, whether the model's term keeps the data's experts.

        Returns:
            `Divergence`, see `keras_capsule_poe.functions.decoder_divergence`.
        """
        step = implementations.get(self.implementation).routed_decoder_divergence
        kernel = ops.cast(self.kernel, self.compute_dtype)
        return step(inputs, z, kernel, conditional, **self.routing_options())

    def gibbs_step(self, inputs):
        """The visible capsules after one step of the chain: up and down with one routing.

        Args:
            inputs: Tensor (B, I, D), squashed primary capsules.

        Returns:
            Tensor (B, I, D), squashed.
        """
        coefficients, z = self.route(inputs)
        kernel = ops.cast(self.kernel, self.compute_dtype)
        return squash(backproject(coefficients, kernel, squash(z)))

    def regularization_gradient(self):
        """Gradient of the regulariser in the maps, by hand: l1 sign(W) + 2 l2 W; or zero."""
        gradient = ops.zeros_like(self.kernel)
        l1 = getattr(self.kernel_regularizer, "l1", None)
        l2 = getattr(self.kernel_regularizer, "l2", None)
        if l1:
            gradient = gradient + float(l1) * ops.sign(self.kernel)
        if l2:
            gradient = gradient + 2 * float(l2) * self.kernel
        return gradient
