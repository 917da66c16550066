"""Layers after the last capsules: lengths and masking."""

import keras
from keras import ops

from keras_capsule_poe.functions.norms import length
from keras_capsule_poe.functions.winners import winners


@keras.saving.register_keras_serializable("keras_capsule_poe")
class CapsuleLength(keras.layers.Layer):
    """Lengths of capsules, which are the probabilities that they are on.

    Call arguments:
        inputs: Tensor (..., E), capsules.

    Returns:
        Tensor (...).

    Example:
        >>> CapsuleLength()(np.array([[[0.6, 0.8], [0.0, 0.0]]])).numpy().round(3).tolist()
        [[1.0, 0.0]]

    Reference:
        [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Section 2.
    """

    def call(self, inputs):
        return ops.cast(length(inputs), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)[:-1]


@keras.saving.register_keras_serializable("keras_capsule_poe")
class CapsuleMask(keras.layers.Layer):
    """Mask that keeps the labelled capsules, or the longest one, and sets the others to zero.

    Call arguments:
        inputs: Tensor (B, J, E), capsules.
        labels: Tensor (B, J) of zeros and ones. None keeps the longest capsule of each image.

    Returns:
        Tensor (B, J, E).

    Raises:
        ValueError: If `labels` is not of shape (B, J).

    Example:
        >>> capsules = np.array([[[0.5, 0.0], [0.0, 0.25]]], "float32")
        >>> CapsuleMask()(capsules).numpy().tolist()
        [[[0.5, 0.0], [0.0, 0.0]]]
        >>> CapsuleMask()(capsules, np.array([[0.0, 1.0]])).numpy().tolist()
        [[[0.0, 0.0], [0.0, 0.25]]]

    Reference:
        [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Section 4.1.
    """

    def call(self, inputs, labels=None):
        capsules = inputs.shape[1]
        if labels is None:
            labels = ops.one_hot(winners(inputs), capsules)
        elif len(labels.shape) != 2 or labels.shape[1] != capsules or _differ(labels, inputs):
            raise ValueError(
                f"`labels` must have shape (batch, {capsules}), one row for each of the inputs; "
                "keras.utils.to_categorical makes it from integers. "
                f"Received: shape {tuple(labels.shape)}, inputs of {tuple(inputs.shape)}"
            )
        # Not a product: it would keep the NaN of a masked capsule.
        is_kept = ops.cast(labels, "float32")[:, :, None] > 0
        return ops.where(is_kept, inputs, ops.zeros_like(inputs))

    def compute_output_shape(self, inputs_shape, labels_shape=None):
        return tuple(inputs_shape)


def _differ(labels, inputs):
    """Return whether both batch sizes are known and differ."""
    return len({labels.shape[0], inputs.shape[0]} - {None}) > 1
