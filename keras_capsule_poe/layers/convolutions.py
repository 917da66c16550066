"""Convolutions that need fewer multiplications in training, and decoders of capsules."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Identifier
from keras_capsule_poe.core.arguments import Configured, image_shape_given
from keras_capsule_poe.core.fused.convolution import convolve, transposed
from keras_capsule_poe.core.numerics import whole_number


class _Fast:
    """Convolution with a fast form in training, bounded by `limits` (None: by the dtype)."""

    limits = None

    def call(self, inputs, training=None):
        if not training:
            return super().call(inputs)
        is_usual = self.data_format == "channels_last" and len(set(self.strides)) == 1
        is_usual = is_usual and set(self.dilation_rate) == {1} and self._has_fast_form()
        y = self._fast(inputs, self.kernel, self.strides[0]) if is_usual else self._plain(inputs)
        if self.bias is not None:
            # Not `ops.add`: TensorFlow sums its gradient in half precision.
            last = self.data_format == "channels_last"
            y = y + (self.bias if last else ops.reshape(self.bias, (-1, 1, 1)))
        return y if self.activation is None else self.activation(y)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class FastConv2D(_Fast, keras.layers.Conv2D):
    """`keras.layers.Conv2D` that needs fewer multiplications in training on a CPU.

    All arguments and shapes are those of the Keras layer. In training, large filters with many
    channels use a fast algorithm. Other cases run as in Keras. Results differ only by rounding.
    Half precision is computed in float32 and then rounded. The bias gradient is summed in
    float32, because long half-precision sums stop growing.

    Example:
        >>> layer = FastConv2D(64, 5, padding="same", activation="relu")
        >>> layer(np.ones((2, 28, 28, 32)), training=True).shape
        TensorShape([2, 28, 28, 64])

    Reference:
        [Lavin and Gray, 2015](https://arxiv.org/abs/1509.09308).
    """

    def _has_fast_form(self):
        return self.groups == 1

    def _plain(self, inputs):
        return self.convolution_op(inputs, self.kernel)

    def _fast(self, inputs, kernel, strides):
        return convolve(inputs, kernel, strides, self.padding, fast=True, limits=self.limits)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class FastConv2DTranspose(_Fast, keras.layers.Conv2DTranspose):
    """`keras.layers.Conv2DTranspose` that needs fewer multiplications in training on a CPU.

    The rules of `FastConv2D` apply. Large filters with few output channels are fast, too.
    All arguments and shapes are those of the Keras layer.

    Example:
        >>> layer = FastConv2DTranspose(32, 9, strides=2)
        >>> layer(np.ones((2, 6, 6, 64)), training=True).shape
        TensorShape([2, 19, 19, 32])
    """

    def _has_fast_form(self):
        return self.padding == "valid" and self.output_padding is None

    def _plain(self, inputs):
        return ops.conv_transpose(
            inputs,
            self.kernel,
            strides=list(self.strides),
            padding=self.padding,
            output_padding=self.output_padding,
            dilation_rate=self.dilation_rate,
            data_format=self.data_format,
        )

    def _fast(self, inputs, kernel, strides):
        return transposed(inputs, kernel, strides, fast=True, limits=self.limits)


class _Decoder(Configured, keras.layers.Layer):
    """Base of both decoders: image shape and initializers."""

    def __init__(self, image_shape, kernel_initializer, bias_initializer, **kwargs):
        super().__init__(**kwargs)
        sizes = image_shape_given("image_shape", image_shape)
        self.image_shape = tuple(whole_number("image_shape", size) for size in sizes)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def _initializers(self):
        # One copy per layer: an initializer returns the same numbers at each call.
        return {
            "kernel_initializer": _copy(self.kernel_initializer),
            "bias_initializer": _copy(self.bias_initializer),
            "dtype": self.dtype_policy,
        }

    def _flat(self, inputs):
        return ops.reshape(inputs, (-1, math.prod(inputs.shape[1:])))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], *self.image_shape)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class DenseDecoder(_Decoder):
    """Fully connected decoder from capsules to images.

    The hidden layers use ReLU, and the output layer uses a sigmoid.

    Args:
        image_shape: Tuple (H, W, C).
        units: Sequence of int, sizes of the hidden layers.
        kernel_initializer, bias_initializer: For all layers.

    Call arguments:
        inputs: Tensor (B, J, E), capsules, usually masked by `CapsuleMask`.

    Returns:
        Tensor (B, H, W, C), pixels in `[0, 1]`.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> decoder = DenseDecoder((28, 28, 1))
        >>> decoder(np.ones((2, 10, 16), "float32")).shape, decoder.count_params()
        (TensorShape([2, 28, 28, 1]), 1411344)

    Reference:
        [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Figure 2.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        units: Sequence[int] = (512, 1024),
        kernel_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(image_shape, kernel_initializer, bias_initializer, **kwargs)
        self.units = tuple(whole_number("units", number) for number in units)
        sizes = [(number, "relu") for number in self.units]
        sizes += [(math.prod(self.image_shape), "sigmoid")]
        self.dense = [
            keras.layers.Dense(number, activation, name=f"dense_{k}", **self._initializers())
            for k, (number, activation) in enumerate(sizes)
        ]

    def build(self, input_shape):
        shape = (None, math.prod(input_shape[1:]))
        for layer in self.dense:
            layer.build(shape)
            shape = (None, layer.units)

    def call(self, inputs):
        x = self._flat(inputs)
        for layer in self.dense:
            x = layer(x)
        return ops.reshape(x, (-1, *self.image_shape))


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvDecoder(_Decoder):
    """Decoder from capsules to images by two transposed convolutions of stride two.

    A dense layer makes feature maps of a quarter of the image size. The output is cropped to the
    image size, and its activation is a sigmoid.

    Args:
        image_shape: Tuple (H, W, C).
        filters: int, filters of the first convolution. The second has half as many.
        kernel_size: int, in pixels.
        kernel_initializer, bias_initializer: For all layers.

    Call arguments:
        inputs: Tensor (B, J, E), capsules, usually masked by `CapsuleMask`.

    Returns:
        Tensor (B, H, W, C), pixels in `[0, 1]`.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> ConvDecoder((30, 21, 3))(np.ones((2, 10, 16), "float32")).shape
        TensorShape([2, 30, 21, 3])

    Reference:
        [Rajasegaran et al., 2019](https://arxiv.org/abs/1904.09546), Section 3.2.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        filters: int = 64,
        kernel_size: int = 5,
        kernel_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(image_shape, kernel_initializer, bias_initializer, **kwargs)
        self.filters = whole_number("filters", filters)
        self.kernel_size = whole_number("kernel_size", kernel_size)
        self._start = (*(-(-size // 4) for size in self.image_shape[:2]), self.filters)
        self.dense = keras.layers.Dense(
            math.prod(self._start), "relu", name="dense", **self._initializers()
        )
        sizes = ((self.filters, "relu"), (-(-self.filters // 2), "relu"))
        self.convolutions = [
            Conv2DTranspose(
                filters,
                self.kernel_size,
                strides=2,
                padding="same",
                activation=activation,
                data_format="channels_last",
                name=f"convolution_{k}",
                **self._initializers(),
            )
            for k, (filters, activation) in enumerate(sizes)
        ]
        self.last = FastConv2D(
            self.image_shape[2],
            self.kernel_size,
            padding="same",
            activation="sigmoid",
            data_format="channels_last",
            name="last",
            **self._initializers(),
        )

    def build(self, input_shape):
        self.dense.build((None, math.prod(input_shape[1:])))
        shape = (None, *self._start)
        for layer in (*self.convolutions, self.last):
            layer.build(shape)
            shape = layer.compute_output_shape(shape)

    def call(self, inputs):
        x = ops.reshape(self.dense(self._flat(inputs)), (-1, *self._start))
        for layer in (*self.convolutions, self.last):
            x = layer(x)
        return x[:, : self.image_shape[0], : self.image_shape[1]]


class Conv2DTranspose(FastConv2DTranspose):
    """`FastConv2DTranspose` under Keras' class name, which names the weights in saved files."""


def _copy(initializer):
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer.clone()
    # A function has no state to copy.
    return initializer
