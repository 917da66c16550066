"""Each image standardised by itself, as a layer."""

import math

import keras
from keras import ops

# As `data.augmentation.standardize` has it, whose images are in units of grey levels.
LEVELS = 255


@keras.saving.register_keras_serializable("keras_capsule_poe")
class Standardize(keras.layers.Layer):
    """Each image with mean 0 and variance 1 over all its pixels and channels.

    The deviation counts as at least 1 / sqrt(number of pixels) grey levels, 255 of which are 1,
    so that a uniform image is 0.

    Call arguments:
        inputs: Tensor (B, H, W, C), pixels in [0, 1].

    Returns:
        Tensor (B, H, W, C).

    Examples:

    >>> Standardize()(np.array([0.0, 1.0], "float32").reshape(1, 1, 2, 1)).numpy().ravel().tolist()
    [-1.0, 1.0]
    """

    def call(self, inputs):
        axes = (1, 2, 3)
        # Both moments in float32: half precision has too few digits for a variance.
        x = ops.cast(inputs, "float32")
        centred = x - ops.mean(x, axis=axes, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=axes, keepdims=True)
        # Sizes may be known in a graph alone; their product has more digits than 32 bits.
        sizes = [ops.cast(size, "float32") for size in ops.shape(inputs)[1:]]
        least = 1 / (LEVELS**2 * math.prod(sizes))
        return ops.cast(centred / ops.sqrt(ops.maximum(variance, least)), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)
