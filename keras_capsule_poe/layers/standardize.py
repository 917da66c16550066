"""Per-image standardization."""

import math

import keras
from keras import ops

# `data.augmentation.standardize` works on grey levels, this layer on pixels in `[0, 1]`.
LEVELS = 255


@keras.saving.register_keras_serializable("keras_capsule_poe")
class Standardize(keras.layers.Layer):
    """Standardization of each image to mean 0 and variance 1 over its pixels and channels.

    The standard deviation is at least `1 / (255 sqrt(H W C))`, so that a constant image becomes 0.

    Call arguments:
        inputs: Tensor (B, H, W, C), pixels in `[0, 1]`.

    Returns:
        Tensor (B, H, W, C).

    Example:
        >>> x = np.array([0.0, 1.0], "float32").reshape(1, 1, 2, 1)
        >>> Standardize()(x).numpy().ravel().tolist()
        [-1.0, 1.0]
    """

    def call(self, inputs):
        axes = (1, 2, 3)
        # Half precision has too few digits for a variance.
        x = ops.cast(inputs, "float32")
        centred = x - ops.mean(x, axis=axes, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=axes, keepdims=True)
        # The sizes may be symbolic, and their product with LEVELS^2 overflows int32.
        sizes = [ops.cast(size, "float32") for size in ops.shape(inputs)[1:]]
        least = 1 / (LEVELS**2 * math.prod(sizes))
        return ops.cast(centred / ops.sqrt(ops.maximum(variance, least)), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)
