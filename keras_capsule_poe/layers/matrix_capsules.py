"""Primary matrix capsules."""

import keras
from keras import ops

from keras_capsule_poe.functions.checks import real_number, whole_number


@keras.saving.register_keras_serializable("keras_capsule_poe")
class PrimaryMatrixCapsules(keras.layers.Layer):
    """Primary matrix capsules: linear maps from features to poses and activations.

    Args:
        types: int, I, capsules at each position.
        size: int, P, height and width of a pose matrix.
        activation_bias: float, added to the log-odds of the activations.
        pose_initializer, activation_initializer: For the maps to poses and to log-odds.
        kernel_regularizer: For both maps.

    Call arguments:
        features: Tensor (B, H, W, F).

    Returns:
        Poses (B, H, W, I, P, P) and activations (B, H, W, I) in `(0, 1)`.

    Raises:
        ValueError: If an argument is invalid.

    Example:
        >>> pose, activation = PrimaryMatrixCapsules(8)(np.ones((2, 6, 5, 16)))
        >>> activation.shape, pose.shape == (*activation.shape, 4, 4)
        (TensorShape([2, 6, 5, 8]), True)

    Reference:
        [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 4.
    """

    def __init__(
        self,
        types,
        size=4,
        activation_bias=0.0,
        pose_initializer="glorot_uniform",
        activation_initializer="glorot_uniform",
        kernel_regularizer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.types, self.size = whole_number("types", types), whole_number("size", size)
        self.activation_bias = real_number("activation_bias", activation_bias)
        self.pose_initializer = keras.initializers.get(pose_initializer)
        self.activation_initializer = keras.initializers.get(activation_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)

    def build(self, input_shape):
        features = input_shape[-1]
        self.input_spec = keras.layers.InputSpec(ndim=4, axes={-1: features})

        def kernel(name, columns, initializer):
            return self.add_weight(
                shape=(features, columns),
                initializer=initializer,
                regularizer=self.kernel_regularizer,
                name=name,
            )

        self.pose_kernel = kernel("pose", self.types * self.size**2, self.pose_initializer)
        self.activation_kernel = kernel("activation", self.types, self.activation_initializer)

    def call(self, features):
        pose = ops.matmul(features, self.pose_kernel)
        log_odds = ops.matmul(features, self.activation_kernel) + self.activation_bias
        shape = (-1, *ops.shape(features)[1:3], self.types, self.size, self.size)
        return ops.reshape(pose, shape), ops.sigmoid(log_odds)

    def compute_output_shape(self, input_shape):
        places = (*input_shape[:3], self.types)
        return (*places, self.size, self.size), places

    def get_config(self):
        return {
            **super().get_config(),
            "types": self.types,
            "size": self.size,
            "activation_bias": self.activation_bias,
            "pose_initializer": keras.initializers.serialize(self.pose_initializer),
            "activation_initializer": keras.initializers.serialize(self.activation_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
        }
