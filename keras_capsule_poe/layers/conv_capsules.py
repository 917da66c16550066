"""Primary capsules from a convolution."""

from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Identifier
from keras_capsule_poe.core.fused.convolution import convolve
from keras_capsule_poe.core.numerics import one_of, squash, whole_number


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvCapsules(keras.layers.Layer):
    """Convolution whose output channels are grouped into capsules, `types` at each position.

    `x = squash(k * features + b)`, with filters k. With `divide` the convolution is divided by
    `types`, as in the official code, where each vote is routed uniformly to all types.

    Args:
        types: int, capsules at each position.
        dim: int, D, dimension of a capsule.
        kernel_size: int, height and width of the filters.
        strides: int.
        padding: `"valid"` or `"same"`.
        divide: bool, divide the convolution by `types` before the bias is added.
        use_bias: bool.
        kernel_initializer, kernel_regularizer: For the filters.
        bias_initializer: For b.

    Call arguments:
        features: Tensor (B, H, W, F).
        training: bool, use the fast convolution of `FastConv2D`.

    Returns:
        Tensor (B, h * w * types, D), of lengths below one.

    Raises:
        ValueError: If an argument is invalid or `features` is not a feature map.

    Example:
        >>> ConvCapsules(types=32, dim=8)(np.ones((2, 20, 20, 16))).shape
        TensorShape([2, 1152, 8])

    Reference:
        [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Section 4.
    """

    def __init__(
        self,
        types: int,
        dim: int = 8,
        kernel_size: int = 9,
        strides: int = 2,
        padding: str = "valid",
        divide: bool = False,
        use_bias: bool = True,
        kernel_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.types = whole_number("types", types)
        self.dim = whole_number("dim", dim)
        self.kernel_size = whole_number("kernel_size", kernel_size)
        self.strides = whole_number("strides", strides)
        self.padding = one_of("padding", padding, ("valid", "same"))
        self.divide, self.use_bias = bool(divide), bool(use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)

    def build(self, input_shape):
        self.compute_output_shape(input_shape)
        self.input_spec = keras.layers.InputSpec(ndim=4, axes={-1: input_shape[-1]})
        channels = self.types * self.dim
        self.kernel = self.add_weight(
            shape=(self.kernel_size, self.kernel_size, input_shape[-1], channels),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            name="kernel",
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(channels,), initializer=self.bias_initializer, name="bias"
            )

    def call(self, features, training=None):
        z = convolve(features, self.kernel, self.strides, self.padding, fast=bool(training))
        z = z / self.types if self.divide else z
        z = z if self.bias is None else z + self.bias
        _, height, width, _ = ops.shape(z)
        return squash(ops.reshape(z, (-1, height * width * self.types, self.dim)))

    def compute_output_shape(self, input_shape):
        shape = tuple(input_shape)
        if len(shape) != 4 or shape[3] is None:
            raise ValueError(
                "ConvCapsules needs a feature map (batch, height, width, features) with its "
                "features known. For sequences and volumes use keras.layers.Conv1D or Conv3D and "
                f"then PrimaryCapsules. Received: input_shape={shape}"
            )
        if None in shape[1:3]:
            return (shape[0], None, self.dim)
        places = 1
        for size in shape[1:3]:
            room = size if self.padding == "same" else size - self.kernel_size + 1
            if room < 1:
                raise ValueError(
                    f"`kernel_size` must fit into the feature map. Received: kernel_size="
                    f"{self.kernel_size}, input_shape={shape}"
                )
            places *= -(-room // self.strides)
        return (shape[0], places * self.types, self.dim)

    def get_config(self):
        return {
            **super().get_config(),
            "types": self.types,
            "dim": self.dim,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "divide": self.divide,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
        }
