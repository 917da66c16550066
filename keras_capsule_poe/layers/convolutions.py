"""Convolutions that need fewer multiplications in training."""

import keras
from keras import ops

from keras_capsule_poe.core.fused.convolution import convolve, transposed


class _Fast:
    """Convolution with a fast form in training, bounded by `limits` (None: by the dtype)."""

    limits = None

    def call(self, inputs, training=None):
        is_usual = self.data_format == "channels_last" and len(set(self.strides)) == 1
        is_usual = is_usual and set(self.dilation_rate) == {1} and self._has_fast_form()
        if not training:
            return super().call(inputs)
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
