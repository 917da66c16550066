"""A fully connected layer of capsules with routing by agreement."""

import keras
from keras import ops

from keras_capsule_poe.functions import implementations
from keras_capsule_poe.functions.routing import check_routing_options
from keras_capsule_poe.functions.squash import squash


@keras.saving.register_keras_serializable("keras_capsule_poe")
class RoutingLayer(keras.layers.Layer):
    """Output capsules from input capsules by dynamic routing.

    z_j = sum_i c_ij W_ij x_i, x_j = squash(z_j), where the routing coefficients c_ij are found
    per image by agreement between the votes W_ij x_i and the collectives z_j. Any number and
    size of capsules; layers stack, and train by backpropagation like any other.

    Args:
        capsules: int, J, the number of output capsules.
        dim: int, E, the size of an output capsule.
        iterations: int, agreement updates. Sabour's "r iterations" are r - 1 here.
        temperature: float, factor on the agreement.
        normalize: `"outputs"` (sum_j c_ij is constant: each input splits a budget) or
            `"inputs"` (sum_i c_ij is constant: each output is a weighted mean of its votes).
        agreement: `"cosine"` or `"dot"`.
        activation_prior: float, beta in c_ij ~ exp(T agreement) |z_j|^(2 beta).
        use_routing_bias: bool, whether the logits have a bias per output capsule. It is not
            trained by backpropagation; whoever balances the load moves it.
        scale: float, what the coefficients sum to; or `None`: the mean coefficient is one
            with `"inputs"`, the sum is one with `"outputs"`.
        kernel_initializer, kernel_regularizer, kernel_constraint: For the prediction maps W.
        implementation: `"streamed"`, in blocks and without storing the votes, or `"plain"`,
            the readable reference. Both give the same numbers.
        **kwargs: Base layer arguments.

    Call arguments:
        inputs: Tensor (B, I, D), squashed capsules.

    Returns:
        Tensor (B, J, E), of lengths below one.

    Raises:
        ValueError: If an option is unknown, a size is not positive, or the input's rank or
            size is not (batch, capsules, dim).

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Procedure 1
    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1
    """

    def __init__(
        self,
        capsules,
        dim,
        iterations=2,
        temperature=1.0,
        normalize="outputs",
        agreement="cosine",
        activation_prior=0.0,
        use_routing_bias=False,
        scale=1.0,
        kernel_initializer=None,
        kernel_regularizer=None,
        kernel_constraint=None,
        implementation="streamed",
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, value in (("capsules", capsules), ("dim", dim)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
        check_routing_options(iterations, normalize, agreement)
        implementations.get(implementation)
        self.capsules = capsules
        self.dim = dim
        self.iterations = iterations
        self.temperature = temperature
        self.normalize = normalize
        self.agreement = agreement
        self.activation_prior = activation_prior
        self.use_routing_bias = use_routing_bias
        self.scale = scale
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.RandomNormal(stddev=0.1)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.implementation = implementation

    def build(self, input_shape):
        inputs, dim = self._checked_shape(input_shape)
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={1: inputs, 2: dim})
        self.kernel = self.add_weight(
            shape=(inputs, self.capsules, self.dim, dim),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            name="kernel",
        )
        self.routing_bias = None
        if self.use_routing_bias:
            self.routing_bias = self.add_weight(
                shape=(self.capsules,),
                initializer="zeros",
                trainable=False,
                autocast=False,
                name="routing_bias",
            )

    @property
    def coefficient_scale(self):
        """What the routing coefficients sum to, `scale` resolved; known once built."""
        if self.scale not in (None, "mean"):
            return float(self.scale)
        return float(self.kernel.shape[0]) if self.normalize == "inputs" else 1.0

    def call(self, inputs):
        return ops.cast(squash(self.route(inputs).z), self.compute_dtype)

    def route(self, inputs, activation_prior=None):
        """Routing coefficients and collectives of a batch.

        Args:
            inputs: Tensor (B, I, D), squashed capsules.
            activation_prior: Overrides the layer's, while it is annealed.

        Returns:
            `Routing(coefficients, z)`: (B, I, J) and (B, J, E).
        """
        return implementations.get(self.implementation).route(
            inputs,
            ops.cast(self.kernel, self.compute_dtype),
            **self.routing_options(activation_prior),
        )

    def routing_options(self, activation_prior=None):
        """The keyword arguments of `functions.route` that this layer stands for."""
        return {
            "iterations": self.iterations,
            "temperature": self.temperature,
            "normalize": self.normalize,
            "kind": self.agreement,
            "activation_prior": (
                self.activation_prior if activation_prior is None else activation_prior
            ),
            "bias": self.routing_bias,
            "scale": self.coefficient_scale,
        }

    def compute_output_shape(self, input_shape):
        self._checked_shape(input_shape)
        return (input_shape[0], self.capsules, self.dim)

    def _checked_shape(self, input_shape):
        shape = tuple(input_shape)
        if len(shape) != 3 or None in shape[1:]:
            raise ValueError(
                f"{type(self).__name__} needs capsules of shape (batch, capsules, dim) with all "
                "sizes but the batch known; PrimaryCapsules or Reshape makes them. "
                f"Received: input_shape={shape}"
            )
        return shape[1:]

    def get_config(self):
        return {
            **super().get_config(),
            "capsules": self.capsules,
            "dim": self.dim,
            "iterations": self.iterations,
            "temperature": self.temperature,
            "normalize": self.normalize,
            "agreement": self.agreement,
            "activation_prior": self.activation_prior,
            "use_routing_bias": self.use_routing_bias,
            "scale": self.scale,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "implementation": self.implementation,
        }
