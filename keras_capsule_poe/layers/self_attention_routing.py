"""Fully connected capsule layer with self-attention routing."""

from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Identifier
from keras_capsule_poe.core.fused.attention import SelfAttention, attend
from keras_capsule_poe.core.maps import EinsumMaps
from keras_capsule_poe.core.numerics import (
    at_least_float32,
    exponential_squash,
    one_of,
    whole_number,
)
from keras_capsule_poe.core.routing import Routing, initial_stddev
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.layers.routing_layer import without_padding


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class SelfAttentionRouting(keras.layers.Layer):
    """Fully connected capsules with self-attention routing, which needs no iterations.

    `z_j = sum_i (p_ij + b_ij) W_ij x_i`, with `p_i` the softmax over the outputs of the agreement
    of vote i with the sum of all votes. `x_j = (1 - exp(-|z_j|)) z_j/|z_j|`.

    Args:
        capsules: int, J, number of output capsules.
        dim: int, E, dimension of an output capsule.
        use_bias: bool, add a bias b_ij to the coupling coefficients.
        routing: `"attention"`, or the ablation `"uniform"`, in which all p_ij are `1/J`.
        kernel_initializer, kernel_regularizer: For the maps W. The default initializer is that of
            `RoutingLayer`.
        bias_initializer: For b.
        implementation: `"fused"`, which does not store the votes; or `"reference"`, the readable
            form. The results agree.

    Call arguments:
        inputs: Tensor (B, I, D), capsules.
        mask: Boolean tensor (B, I), or None. Masked capsules have coefficients of zero.

    Returns:
        Tensor (B, J, E), of lengths below one.

    Raises:
        ValueError: If an argument is invalid, or if the input is not of shape (B, I, D).

    Example:
        >>> SelfAttentionRouting(10, 16)(keras.random.uniform((2, 6, 8), seed=0)).shape
        TensorShape([2, 10, 16])

    Reference:
        [Mazzia et al., 2021](https://doi.org/10.1038/s41598-021-93977-0), Equations 4 to 6.
    """

    def __init__(
        self,
        capsules: int,
        dim: int,
        use_bias: bool = True,
        routing: str = "attention",
        kernel_initializer: Identifier = None,
        kernel_regularizer: Identifier = None,
        bias_initializer: Identifier = "zeros",
        implementation: str = "fused",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.capsules = whole_number("capsules", capsules)
        self.dim = whole_number("dim", dim)
        self.use_bias = bool(use_bias)
        self.routing = one_of("routing", routing, ("attention", "uniform"))
        self.implementation = one_of("implementation", implementation, ("fused", "reference"))
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True

    def build(self, input_shape):
        self.compute_output_shape(input_shape)
        _, inputs, dim = input_shape
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={1: inputs, 2: dim})
        # The exponential squash keeps short vectors, and attention saturates at long ones.
        start = {"selected": self._selected(inputs), "target": 0.3}
        stddev = initial_stddev(inputs, self.dim, 1 / self.capsules, **start)
        self.kernel = self.add_weight(
            shape=(inputs, self.capsules, self.dim, dim),
            initializer=self.kernel_initializer or keras.initializers.RandomNormal(stddev=stddev),
            regularizer=self.kernel_regularizer,
            name="kernel",
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(inputs, self.capsules), initializer=self.bias_initializer, name="bias"
            )

    def _selected(self, inputs):
        """Return the part by which attention increases sums of votes, for `initial_stddev`."""
        strength = inputs / self.dim**1.5 if self.routing == "attention" else 0.0
        return lambda vote: strength * vote**2

    def call(self, inputs, mask=None):
        return ops.cast(exponential_squash(self.route(inputs, mask).z), self.compute_dtype)

    def compute_mask(self, inputs, previous_mask=None):
        # No output capsule is padding.
        return None

    def route(self, inputs, mask=None):
        """Return `Routing(coefficients, z)`, (B, I, J) and (B, J, E), of inputs (B, I, D).

        Inputs whose `mask` (B, I) is False have coefficients of zero.
        """
        if mask is not None:
            mask = ops.cast(mask, "bool")
            c, z = self.route(without_padding(inputs, mask))
            return Routing(c * ops.cast(mask, c.dtype)[:, :, None], z)
        kernel = ops.cast(self.kernel, self.compute_dtype)
        if self.routing == "uniform":
            return self._uniform(at_least_float32(inputs), at_least_float32(kernel))
        if self.implementation == "fused":
            return attend(inputs, kernel, self.bias)
        return SelfAttention(EinsumMaps(kernel), self.bias).route(inputs)

    def _uniform(self, x, kernel):
        share = ops.ones(kernel.shape[:2], dtype=kernel.dtype) / self.capsules
        share = share if self.bias is None else share + ops.cast(self.bias, kernel.dtype)
        # Constant coefficients can be folded into the maps.
        z = EinsumMaps(kernel * share[:, :, None, None]).equal_up(ops.cast(x, kernel.dtype))
        return Routing(ops.broadcast_to(share, (ops.shape(x)[0], *share.shape)), z)

    def compute_output_shape(self, input_shape):
        shape = tuple(input_shape)
        if len(shape) != 3 or None in shape[1:]:
            raise ValueError(
                "SelfAttentionRouting needs capsules of shape (batch, capsules, dim) with all "
                f"sizes but the batch known. Received: input_shape={shape}"
            )
        return (shape[0], self.capsules, self.dim)

    def get_config(self):
        return {
            **super().get_config(),
            "capsules": self.capsules,
            "dim": self.dim,
            "use_bias": self.use_bias,
            "routing": self.routing,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "implementation": self.implementation,
        }
