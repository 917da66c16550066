"""Squash as a layer."""

import math
from typing import Any

import keras
from keras import ops

from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.core.numerics import exponential_squash, length, one_of, squash
from keras_capsule_poe.core.sharding import drop_rows

SQUASHES = {"quadratic": squash, "exponential": exponential_squash}


@keras.saving.register_keras_serializable("keras_capsule_poe")
class Squash(keras.layers.Layer):
    """Squash, which shrinks vectors to lengths below one.

    Args:
        kind: `"quadratic"` for the length `|z|^2/(1 + |z|^2)`, or `"exponential"` for
            `1 - exp(-|z|)`.

    Call arguments:
        inputs: Tensor (..., E).

    Returns:
        Tensor (..., E).

    Raises:
        ValueError: If `kind` is unknown.

    Example:
        >>> Squash()(np.array([[0.0, 1.0]], "float32")).numpy().tolist()
        [[0.0, 0.5]]

    Reference:
        - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Equation 1.
        - [Mazzia et al., 2021](https://doi.org/10.1038/s41598-021-93977-0), Equation 3.
    """

    def __init__(self, kind: str = "quadratic", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kind = one_of("kind", kind, tuple(SQUASHES))
        self.supports_masking = True

    def call(self, inputs):
        return SQUASHES[self.kind](inputs)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)

    def get_config(self):
        return {**super().get_config(), "kind": self.kind}


@keras.saving.register_keras_serializable("keras_capsule_poe")
class CapsuleLength(keras.layers.Layer):
    """Lengths of capsules, which are the probabilities that they are on.

    The length of a masked capsule is zero, and the mask is passed on.

    Call arguments:
        inputs: Tensor (..., E), capsules.
        mask: Boolean tensor (...), False for padding; or None.

    Returns:
        Tensor (...).

    Example:
        >>> CapsuleLength()(np.array([[[0.6, 0.8], [0.0, 0.0]]])).numpy().round(3).tolist()
        [[1.0, 0.0]]

    Reference:
        [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Section 2.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        lengths = ops.cast(length(inputs), self.compute_dtype)
        return lengths if mask is None else ops.where(ops.cast(mask, "bool"), lengths, 0)

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

    def compute_output_shape(self, input_shape):
        # One argument of this name, as `build` has: `summary` gives it by name.
        return tuple(input_shape)


def _differ(labels, inputs):
    """Return whether both batch sizes are known and differ."""
    return len({labels.shape[0], inputs.shape[0]} - {None}) > 1


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


@keras.saving.register_keras_serializable("keras_capsule_poe")
class BatchDropout(keras.layers.Dropout):
    """`keras.layers.Dropout` whose mask is drawn for the whole batch and then sharded."""

    def call(self, inputs, training=False):
        if not (training and self.rate > 0):
            return inputs
        return drop_rows(inputs, self.rate, self.seed_generator)
