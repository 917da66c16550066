"""Convolutions that take fewer multiplications in training."""

import keras

from keras_capsule_poe.functions.convolution import convolve, transposed


class _Fast:
    """A convolution whose training has a fast form, where its arguments are the usual ones.

    Attributes:
        limits: `Limits` of the fast form; None: those of the dtype.
    """

    limits = None

    def call(self, inputs, training=None):
        is_usual = self.data_format == "channels_last" and len(set(self.strides)) == 1
        is_usual = is_usual and set(self.dilation_rate) == {1} and self._has_fast_form()
        if not (training and is_usual):
            return super().call(inputs)
        y = self._fast(inputs, self.kernel, self.strides[0])
        y = y if self.bias is None else y + self.bias
        return y if self.activation is None else self.activation(y)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class FastConv2D(_Fast, keras.layers.Conv2D):
    """A `keras.layers.Conv2D` that takes a fraction of the multiplications in training.

    Large filters of many channels are computed by few products, on a processor, and so are
    transposed ones that lead to few channels, see `lay_down`; all else, and whatever is not
    training, as Keras does. The numbers differ by rounding; half precision is computed in float32,
    by still fewer products, and then rounded.

    Args:
        filters, kernel_size, **kwargs: As `keras.layers.Conv2D` has them.

    Call arguments:
        inputs: Tensor (B, H, W, C).
        training: bool.

    Examples:

    >>> layer = FastConv2D(64, 5, padding="same", activation="relu")
    >>> layer(np.ones((2, 28, 28, 32)), training=True).shape
    TensorShape([2, 28, 28, 64])

    Reference:

    - [Lavin and Gray, 2015](https://arxiv.org/abs/1509.09308)
    """

    def _has_fast_form(self):
        return self.groups == 1

    def _fast(self, inputs, kernel, strides):
        return convolve(inputs, kernel, strides, self.padding, fast=True, limits=self.limits)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class FastConv2DTranspose(_Fast, keras.layers.Conv2DTranspose):
    """A `keras.layers.Conv2DTranspose` that takes a fraction of the multiplications in training.

    See `FastConv2D`.

    Args:
        filters, kernel_size, **kwargs: As `keras.layers.Conv2DTranspose` has them.

    Call arguments:
        inputs: Tensor (B, h, w, C).
        training: bool.

    Examples:

    >>> layer = FastConv2DTranspose(32, 9, strides=2)
    >>> layer(np.ones((2, 6, 6, 64)), training=True).shape
    TensorShape([2, 19, 19, 32])
    """

    def _has_fast_form(self):
        return self.padding == "valid" and self.output_padding is None

    def _fast(self, inputs, kernel, strides):
        return transposed(inputs, kernel, strides, fast=True, limits=self.limits)
