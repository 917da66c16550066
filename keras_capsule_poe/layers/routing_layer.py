"""A fully connected layer of capsules with routing by agreement."""

from dataclasses import asdict, replace

import keras
from keras import ops

from keras_capsule_poe.functions.checks import one_of, whole_number
from keras_capsule_poe.functions.maps import EinsumMaps
from keras_capsule_poe.functions.routing import Router, RoutingOptions
from keras_capsule_poe.functions.streamed.blocks import BlockMaps
from keras_capsule_poe.functions.streamed.router import route_blocks
from keras_capsule_poe.functions.streamed.shared import SharedMaps
from keras_capsule_poe.functions.units import CapsuleUnits


@keras.saving.register_keras_serializable("keras_capsule_poe")
class RoutingLayer(keras.layers.Layer):
    """Output capsules from input capsules by dynamic routing.

    z_j = b_j + sum_i c_ij W_ij x_i, x_j = squash(z_j), where the routing coefficients c_ij are
    found per image by agreement between the votes W_ij x_i and the collectives z_j, bias (if
    there is one) included. Any number and size of capsules; layers stack, and train by
    backpropagation like any other.

    Args:
        capsules: int, J, the number of output capsules.
        dim: int, E, the size of an output capsule.
        iterations, temperature, normalize, agreement, activation_prior, scale, leaky, logits: See
            `functions.RoutingOptions`; the attribute `options` holds them. Zero iterations leave
            the coefficients uniform.
        use_routing_bias: bool, whether the logits have a bias per output capsule. It is not
            trained by backpropagation; whoever balances the load moves it. A softmax over the
            inputs (`normalize="inputs"`) cancels it.
        kernel_initializer, kernel_regularizer, kernel_constraint: For the prediction maps W.
        implementation: `"streamed"`, in blocks and without storing the votes, or `"plain"`,
            the readable reference. Both give the same numbers.
        use_bias: bool, whether output capsules are affine, each with a bias b_j of E numbers.
        bias_initializer: For b.
        shared_weights: bool, whether all inputs share the maps W_j of a kernel (1, J, E, D).
            There may then be any number of them, also another one in each call.
        **kwargs: Base layer arguments.

    Call arguments:
        inputs: Tensor (B, I, D), capsules.

    Returns:
        Tensor (B, J, E), of lengths below one.

    Raises:
        ValueError: If an option is unknown, a size is not positive, or the input's rank or
            size is not (batch, capsules, dim).

    Examples:

    >>> layer = RoutingLayer(capsules=10, dim=16, agreement="dot")
    >>> layer(keras.random.uniform((2, 6, 8), seed=0)).shape
    TensorShape([2, 10, 16])

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Procedure 1
    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1
    """

    units = CapsuleUnits()

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
        use_bias=False,
        bias_initializer="zeros",
        leaky=False,
        logits="accumulated",
        shared_weights=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.capsules = whole_number("capsules", capsules)
        self.dim = whole_number("dim", dim)
        self.options = RoutingOptions(
            iterations=iterations,
            temperature=temperature,
            normalize=normalize,
            agreement=agreement,
            activation_prior=activation_prior,
            scale=scale,
            leaky=leaky,
            logits=logits,
        )
        self.shared_weights = bool(shared_weights)
        self.use_routing_bias, self.use_bias = bool(use_routing_bias), bool(use_bias)
        self.implementation = one_of("implementation", implementation, ("streamed", "plain"))
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.RandomNormal(stddev=0.1)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape):
        inputs, dim = self._checked_shape(input_shape)
        axes = {2: dim} if self.shared_weights else {1: inputs, 2: dim}
        self.input_spec = keras.layers.InputSpec(ndim=3, axes=axes)
        self.kernel = self.add_weight(
            shape=(1 if self.shared_weights else inputs, self.capsules, self.dim, dim),
            initializer=self.kernel_initializer,
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
                # Under `tf.distribute` every replica moves it, by its own images.
                aggregation="mean",
                name="routing_bias",
            )

    @property
    def coefficient_scale(self):
        """What the routing coefficients sum to, `"mean"` resolved; known once built.

        Of shared weights, whose inputs may be any number, only without that word.
        """
        return self.options.total(*self.kernel.shape[:2])

    def call(self, inputs):
        return ops.cast(self.units.mean(self.route(inputs).z), self.compute_dtype)

    def route(self, inputs, coefficients=None):
        """Routing coefficients and collectives of a batch.

        Args:
            inputs: Tensor (B, I, D), squashed capsules.
            coefficients: None; or `"uniform"`: all the same, as if nothing were routed.

        Returns:
            `Routing(coefficients, z)`: (B, I, J) and (B, J, E).

        Raises:
            ValueError: If `coefficients` is something else.
        """
        options, bias = self.options, self.routing_bias
        if coefficients is not None:
            one_of("coefficients", coefficients, ("uniform",))
            options, bias = replace(options, iterations=0), None
        # The gradient by hand is that of capsules.
        if self._is_streamed and isinstance(self.units, CapsuleUnits):
            kernel = ops.cast(self.kernel, self.compute_dtype)
            more = {"hidden_bias": self.bias, "shared": self.shared_weights}
            return route_blocks(inputs, kernel, options, bias, **more)
        return self.router(options, bias, ops.shape(inputs)[1]).route(inputs)

    def router(self, options=None, bias=None, inputs=None):
        """The layer's `functions.Router`, for sums that need it beside its maps.

        Args:
            options: `RoutingOptions`, the layer's own by default, then with its routing bias.
            bias: Tensor (J,), the routing bias beside these options; or None.
            inputs: See `maps`.
        """
        if options is None:
            options, bias = self.options, self.routing_bias
        return Router(self.maps(inputs), options, bias, units=self.units, hidden_bias=self.bias)

    def maps(self, inputs=None):
        """The layer's maps, see `functions.maps`.

        Args:
            inputs: int or scalar integer tensor, how many inputs share the weights, where they do.
        """
        kernel, is_streamed = ops.cast(self.kernel, self.compute_dtype), self._is_streamed
        if not self.shared_weights:
            return BlockMaps(kernel) if is_streamed else EinsumMaps(kernel)
        if is_streamed:
            return SharedMaps(kernel, inputs)
        return EinsumMaps(ops.broadcast_to(kernel, (inputs, *kernel.shape[1:])))

    @property
    def _is_streamed(self):
        return self.implementation == "streamed"

    def start_from_images(self, x, length):
        """Sets the maps to images: row e of output j is one image's input capsules.

        Args:
            x: Array (J * E, I, D), capsules of images.
            length: float, the Euclidean length of each row.
        """
        x = ops.cast(x, self.kernel.dtype)
        sizes = ops.sqrt(ops.sum(ops.square(x), axis=(1, 2), keepdims=True))
        rows = length * x / ops.maximum(sizes, keras.config.epsilon())
        rows = ops.reshape(rows, (self.capsules, self.dim, *x.shape[1:]))
        self.kernel.assign(ops.transpose(rows, (2, 0, 1, 3)))

    def compute_output_shape(self, input_shape):
        self._checked_shape(input_shape)
        return (input_shape[0], self.capsules, self.dim)

    def _checked_shape(self, input_shape):
        shape = tuple(input_shape)
        sizes = shape[2:] if self.shared_weights else shape[1:]
        if len(shape) != 3 or None in sizes:
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
            **asdict(self.options),
            "use_routing_bias": self.use_routing_bias,
            "use_bias": self.use_bias,
            "shared_weights": self.shared_weights,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "implementation": self.implementation,
        }

    @classmethod
    def from_config(cls, config):
        if config.get("scale", 1.0) is None:  # as older versions wrote it
            config = {**config, "scale": "mean" if config["normalize"] == "inputs" else 1.0}
        return super().from_config(config)
