"""Fully connected capsules: dynamic routing, and routing by self-attention."""

from dataclasses import replace
from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Identifier, Tensor
from keras_capsule_poe.core.arguments import Configured
from keras_capsule_poe.core.fused.attention import SelfAttention, attend
from keras_capsule_poe.core.fused.blocks import BlockMaps
from keras_capsule_poe.core.fused.router import route_blocks
from keras_capsule_poe.core.fused.shared_maps import SharedMaps
from keras_capsule_poe.core.maps import EinsumMaps, MaskedMaps
from keras_capsule_poe.core.numerics import (
    at_least_float32,
    exponential_squash,
    one_of,
    whole_number,
)
from keras_capsule_poe.core.routing import Router, Routing, RoutingOptions, initial_stddev
from keras_capsule_poe.core.units import CapsuleUnits
from keras_capsule_poe.former_names import with_former_names

# Inputs that initial shared maps are for, if their number is unknown.
USUAL_INPUTS = 32


class _Parents:
    """Mixin for layers of J capsules of E dimensions over all inputs (B, I, D)."""

    shared_weights = False

    def compute_mask(self, inputs, previous_mask=None):
        # No output capsule is padding.
        return None

    def compute_output_shape(self, input_shape):
        self.checked_shape(input_shape)
        return (input_shape[0], self.capsules, self.dim)

    def checked_shape(self, input_shape):
        """Return I, None if weights are shared and it may be unknown, and D."""
        shape = tuple(input_shape)
        sizes = shape[2:] if self.shared_weights else shape[1:]
        if len(shape) != 3 or None in sizes or 0 in sizes:
            hint = "PrimaryCapsules or Reshape makes them"
            if len(shape) == 3 and shape[2] is not None and isinstance(self, RoutingLayer):
                hint = "`shared_weights=True` allows any number of capsules"
            raise ValueError(
                f"{type(self).__name__} needs capsules of shape (batch, capsules, dim) with all "
                f"sizes but the batch known and above zero; {hint}. Received: input_shape={shape}"
            )
        return shape[1:]

    def route_masked(self, inputs, mask, *arguments):
        """Return the `Routing` of inputs that do not vote where a mask (B, I) is False."""
        mask = ops.cast(mask, "bool")
        c, z = self.route(without_padding(inputs, mask), *arguments)
        return Routing(c * ops.cast(mask, c.dtype)[:, :, None], z)


def without_padding(inputs, mask):
    """Return inputs (B, I, D) with zeros where a mask (B, I) is False: they cast no votes."""
    return ops.where(mask[:, :, None], inputs, ops.zeros_like(inputs))


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class RoutingLayer(_Parents, Configured, keras.layers.Layer):
    """Fully connected capsules with dynamic routing.

    `z_j = a_j + sum_i c_ij W_ij x_i` and `x_j = squash(z_j)`. The coupling coefficients c_ij depend
    on the image: they follow the agreement between the votes `W_ij x_i` and the pre-activation z_j.

    Args:
        capsules: int, J, number of output capsules.
        dim: int, E, dimension of an output capsule.
        routing_iterations: int, as Sabour et al. count them: with one iteration the coefficients
            stay uniform.
        agreement_scale, softmax_over, agreement, activation_prior_weight, coefficient_sum, leaky,
            logits: See `functions.RoutingOptions`.
        use_routing_bias: bool, add a bias per output capsule to the routing logits. It is changed
            by load balancing, not by backpropagation. `softmax_over="inputs"` cancels it.
        kernel_initializer, kernel_regularizer, kernel_constraint: For the maps W. The default
            initializer is normal, of a scale at which capsules of length 0.5 give pre-activations
            of length about one. Layers then stack, because no capsule vanishes.
        implementation: `"fused"`, which does not store the votes; or `"reference"`, the readable
            form. The results agree.
        use_bias: bool, add a bias a_j to each output capsule.
        bias_initializer: For a.
        shared_weights: bool, use the same maps W_j for all inputs, whose number may then vary.

    Call arguments:
        inputs: Tensor (B, I, D), capsules.
        mask: Boolean tensor (B, I), or None. Masked capsules have coefficients of zero, as if
            they were not there.

    Returns:
        Tensor (B, J, E), of lengths below one.

    Raises:
        ValueError: If an option is invalid, or if the input is not of shape (B, I, D).

    Example:
        >>> layer = RoutingLayer(capsules=10, dim=16, agreement="dot")
        >>> layer(keras.random.uniform((2, 6, 8), seed=0)).shape
        TensorShape([2, 10, 16])

    Reference:
        - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Procedure 1.
        - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1.
    """

    units = CapsuleUnits()
    router_class = Router

    def __init__(
        self,
        capsules: int,
        dim: int,
        *,
        routing_iterations: int = 3,
        agreement_scale: float = 1.0,
        softmax_over: str = "outputs",
        agreement: str = "cosine",
        activation_prior_weight: float = 0.0,
        use_routing_bias: bool = False,
        coefficient_sum: float | str = 1.0,
        kernel_initializer: Identifier = None,
        kernel_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        implementation: str = "fused",
        use_bias: bool = False,
        bias_initializer: Identifier = "zeros",
        leaky: bool = False,
        logits: str = "accumulated",
        shared_weights: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.capsules = whole_number("capsules", capsules)
        self.dim = whole_number("dim", dim)
        self.options = RoutingOptions(
            routing_iterations=routing_iterations,
            agreement_scale=agreement_scale,
            softmax_over=softmax_over,
            agreement=agreement,
            activation_prior_weight=activation_prior_weight,
            coefficient_sum=coefficient_sum,
            leaky=leaky,
            logits=logits,
        )
        self.shared_weights = bool(shared_weights)
        self.use_routing_bias, self.use_bias = bool(use_routing_bias), bool(use_bias)
        self.implementation = one_of("implementation", implementation, ("fused", "reference"))
        # None: the scale depends on the number of inputs, which `build` knows.
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True

    def build(self, input_shape):
        inputs, dim = self.checked_shape(input_shape)
        axes = {2: dim} if self.shared_weights else {1: inputs, 2: dim}
        self.input_spec = keras.layers.InputSpec(ndim=3, axes=axes)
        self._inputs = inputs
        self.kernel = self.add_weight(
            shape=(1 if self.shared_weights else inputs, self.capsules, self.dim, dim),
            initializer=self.kernel_initializer
            or keras.initializers.RandomNormal(stddev=self._stddev()),
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            name="kernel",
        )
        self.bias = self.routing_bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(self.capsules, self.dim), initializer=self.bias_initializer, name="bias"
            )
        if self.use_routing_bias:
            self.routing_bias = self.add_weight(
                shape=(self.capsules,),
                initializer="zeros",
                trainable=False,
                autocast=False,
                # Under `tf.distribute` each replica updates it from its own images.
                aggregation="mean",
                name="routing_bias",
            )

    def _stddev(self):
        """Return the standard deviation of the initial maps."""
        options, inputs = self.options, self._inputs or USUAL_INPUTS
        side = inputs if options.softmax_over == "inputs" else self.capsules + options.leaky
        coefficient = float(options.total(inputs, self.capsules)) / side
        # To first order in the agreement. A squashed vector of length one has length 0.5.
        gain = options.updates * float(options.agreement_scale) * inputs**0.5 / self.dim
        gain *= 0.5 if options.agreement == "dot" else 1.0
        is_cosine = options.agreement == "cosine"

        def selected(vote):
            return gain if is_cosine else gain * vote

        return initial_stddev(inputs, self.dim, coefficient, selected)

    @property
    def coefficient_scale(self):
        """Sum of the coefficients, known after `build`, with `"mean"` replaced by its number.

        With shared weights, that number is the one of the inputs that the layer was built for.
        """
        options = self.options
        if self._inputs is None and (options.coefficient_sum, options.softmax_over) == (
            "mean",
            "inputs",
        ):
            raise ValueError(
                "The number of inputs must be known where their mean coefficient is one: build "
                "the layer with it. Received: shared weights for any number of inputs"
            )
        return options.total(self._inputs, self.capsules)

    def call(self, inputs, mask=None):
        more = {} if mask is None else {"mask": mask}
        return ops.cast(self.units.mean(self.route(inputs, **more).z), self.compute_dtype)

    def route(
        self, inputs: Tensor, coefficients: Tensor | None = None, mask: Tensor | None = None
    ) -> Routing:
        """Return `Routing(coefficients, z)`, (B, I, J) and (B, J, E), of inputs (B, I, D).

        `coefficients="uniform"` switches routing off. Inputs whose `mask` (B, I) is False have
        coefficients of zero.
        """
        inputs = _limited(inputs, 1e30)
        options, bias, number = self.options, self.routing_bias, ops.shape(inputs)[1]
        if coefficients is not None:
            one_of("coefficients", coefficients, ("uniform",))
            options, bias = replace(options, routing_iterations=1), None
        if mask is not None and options.softmax_over == "inputs":
            # The fused form has one number of inputs for all images.
            mask = ops.cast(mask, "bool")
            router = self.router(options, bias, number, mask)
            return router.route(without_padding(inputs, mask))
        if mask is not None:
            return self.route_masked(inputs, mask, coefficients)
        if self.implementation == "fused" and self._is_standard:
            kernel = ops.cast(self.kernel, self.compute_dtype)
            more = {"hidden_bias": self.bias, "shared": self.shared_weights}
            return route_blocks(inputs, kernel, options, bias, **more)
        if coefficients is not None:
            # Uniform, also if the router of a subclass has no uniform coefficients.
            more = {"units": self.units, "hidden_bias": self.bias}
            return Router(self.maps(number), options, **more).route(inputs)
        return self.router(options, bias, number).route(inputs)

    @property
    def _is_standard(self):
        """True if nothing is overridden that the fused form and its gradient are for."""
        names = ("router", "maps")
        is_same = all(getattr(type(self), name) is getattr(RoutingLayer, name) for name in names)
        return is_same and self.router_class is Router and type(self.units) is CapsuleUnits

    def router(self, options=None, bias=None, inputs=None, mask=None):
        """Return the `functions.Router`; default options and routing bias are the layer's."""
        if options is None:
            options, bias = self.options, self.routing_bias
        return self.router_class(
            self.maps(inputs, mask), options, bias, units=self.units, hidden_bias=self.bias
        )

    def maps(self, inputs=None, mask=None):
        """Return the maps, see `functions.maps`. `inputs` is the input count of shared weights."""
        kernel = ops.cast(self.kernel, self.compute_dtype)
        if self.implementation == "fused" and mask is None:
            return SharedMaps(kernel, inputs) if self.shared_weights else BlockMaps(kernel)
        if self.shared_weights:
            kernel = ops.broadcast_to(kernel, (inputs, *kernel.shape[1:]))
        if mask is None:
            return EinsumMaps(kernel)
        return MaskedMaps(kernel, mask, self.options.coefficient_sum == "mean")

    def start_from_images(self, x, length):
        """Initialize the maps from capsules of images, an array (J * E, I, D).

        Each row of W is one image, scaled to the Euclidean length `length`.
        """
        x = ops.cast(x, self.kernel.dtype)
        sizes = ops.sqrt(ops.sum(ops.square(x), axis=(1, 2), keepdims=True))
        rows = length * x / ops.maximum(sizes, keras.config.epsilon())
        rows = ops.reshape(rows, (self.capsules, self.dim, *x.shape[1:]))
        self.kernel.assign(ops.transpose(rows, (2, 0, 1, 3)))

    @classmethod
    def from_config(cls, config):
        if config.get("coefficient_sum", 1.0) is None:  # written by older versions
            total = "mean" if config["softmax_over"] == "inputs" else 1.0
            config = {**config, "coefficient_sum": total}
        return super().from_config(config)


def _limited(x, most):
    """Return capsules with entries up to a size whose sums are finite; others stay as they are."""
    x = ops.convert_to_tensor(x)
    is_wide = keras.backend.standardize_dtype(x.dtype) in ("float32", "float64", "bfloat16")
    return ops.clip(x, -most, most) if is_wide else x


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class SelfAttentionRouting(_Parents, Configured, keras.layers.Layer):
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
        inputs, dim = self.checked_shape(input_shape)
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

    def route(self, inputs, mask=None):
        """Return `Routing(coefficients, z)`, (B, I, J) and (B, J, E), of inputs (B, I, D).

        Inputs whose `mask` (B, I) is False have coefficients of zero.
        """
        # Agreements are squares of them.
        inputs = _limited(inputs, 1e15)
        if mask is not None:
            return self.route_masked(inputs, mask)
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
