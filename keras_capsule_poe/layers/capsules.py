"""Capsules: primary ones, their lengths, masks and squashes; standardization of images."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Identifier
from keras_capsule_poe.core.arguments import Configured
from keras_capsule_poe.core.fused.convolution import convolve
from keras_capsule_poe.core.labels import are_present, winners
from keras_capsule_poe.core.numerics import (
    exponential_squash,
    length,
    one_of,
    real_number,
    squash,
    unsquash,
    whole_number,
)
from keras_capsule_poe.core.sharding import drop_rows

SQUASHES = {"quadratic": squash, "exponential": exponential_squash}


@keras.saving.register_keras_serializable("keras_capsule_poe")
class Squash(Configured, keras.layers.Layer):
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
        labels: Tensor (B, J) of zeros and ones; of shares, the largest counts. None keeps the
            longest capsule of each image.

    Returns:
        Tensor (B, J, E).

    Raises:
        ValueError: If `inputs` is not of shape (B, J, E), or `labels` not of shape (B, J).

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
        if len(inputs.shape) != 3 or 0 in tuple(inputs.shape)[1:]:
            raise ValueError(
                "`inputs` must be capsules (batch, capsules, dim) with sizes above zero. "
                f"Received: shape {tuple(inputs.shape)}"
            )
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
        is_kept = are_present(labels)[:, :, None]
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

    Raises:
        ValueError: If the inputs are no images (B, H, W, C) with pixels.

    Example:
        >>> x = np.array([0.0, 1.0], "float32").reshape(1, 1, 2, 1)
        >>> Standardize()(x).numpy().ravel().tolist()
        [-1.0, 1.0]
    """

    def build(self, input_shape):
        shape = tuple(input_shape)
        if len(shape) != 4 or 0 in shape[1:]:
            raise ValueError(
                "`inputs` must be images (batch, height, width, channels) with sizes above zero. "
                f"Received: shape {shape}"
            )

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


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvCapsules(Configured, keras.layers.Layer):
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


@keras.saving.register_keras_serializable("keras_capsule_poe")
class PrimaryCapsules(Configured, keras.layers.Layer):
    """Primary capsules: a feature map, centred, scaled, split into vectors and squashed.

    `z = gain * (features - mean)`, `x = squash(z)`, with I = H W F / D capsules. `adapt`
    estimates the mean and the gain from data, and `to_features` inverts the layer. Sequences
    (B, L, F) and volumes (B, T, H, W, F), such as `Conv1D` and `Conv3D` give them, work alike. The
    decoder rule is stable only if nearly all `|z_i|` are below one, where the slope of
    `log(1 + |z|^2)` peaks.

    Args:
        dim: int, D, dimension of a capsule. It must divide H W F.
        gain: float, factor on the features before `adapt`.
        center: bool, subtract the mean feature. Otherwise every capsule carries the mean image,
            and a single capsule cannot be decoded into anything else.
        target_length: float, root mean square of `|z_i|` after `adapt`.

    Call arguments:
        features: Tensor (B, H, W, F), (B, L, F) or (B, T, H, W, F).

    Returns:
        Tensor (B, I, D), of lengths below one.

    Raises:
        ValueError: If `dim` does not divide the feature map, or if a size is unknown.

    Example:
        >>> features = np.random.default_rng(0).normal(size=(10, 6, 6, 16)).astype("float32")
        >>> primary = PrimaryCapsules(8)
        >>> primary.adapt([features])
        >>> tuple(primary(features).shape)
        (10, 72, 8)

    Reference:
        [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Section 4.
    """

    def __init__(
        self,
        dim: int = 8,
        gain: float = 1.0,
        center: bool = True,
        target_length: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dim = whole_number("dim", dim)
        self.gain = real_number("gain", gain, above=0)
        self.center = center
        self.target_length = real_number("target_length", target_length, above=0)

    def build(self, input_shape):
        self.feature_shape = self._checked_shape(input_shape)
        self.input_spec = keras.layers.InputSpec(
            ndim=1 + len(self.feature_shape),
            axes={axis + 1: size for axis, size in enumerate(self.feature_shape)},
        )
        self.mean = self.add_weight(
            shape=self.feature_shape, initializer="zeros", trainable=False, name="mean"
        )
        self.feature_gain = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(self.gain),
            trainable=False,
            name="feature_gain",
        )

    @property
    def capsules(self):
        """Number of primary capsules, I, known after `build`."""
        return int(np.prod(self.feature_shape)) // self.dim

    def call(self, features):
        return squash(self.to_capsules(features))

    def to_capsules(self, features):
        """Return capsules z (B, I, D) before the squash from features (B, H, W, F)."""
        # Cast the weights, too: outside of `call` they have another dtype in mixed precision.
        z = ops.cast(features, self.compute_dtype) - ops.cast(self.mean, self.compute_dtype)
        z = z * ops.cast(self.feature_gain, self.compute_dtype)
        return ops.reshape(z, (-1, self.capsules, self.dim))

    def to_features(self, x):
        """Return features (B, H, W, F) from squashed capsules (B, I, D). Inverts the call."""
        return self.from_capsules(unsquash(x))

    def from_capsules(self, z):
        """Return features (B, H, W, F) from capsules z (B, I, D) before the squash."""
        features = ops.reshape(z, (-1, *self.feature_shape))
        gain, mean = (ops.cast(x, features.dtype) for x in (self.feature_gain, self.mean))
        return features / gain + mean

    def adapt(self, batches):
        """Estimate the mean feature and the gain from data.

        Args:
            batches: Array (N, H, W, F), or an iterable of arrays (B, H, W, F).

        Raises:
            ValueError: If the data are empty, constant or not finite, or of different shapes.
        """
        count, total, square = 0, 0.0, 0.0
        for batch in [batches] if getattr(batches, "ndim", 0) > 2 else batches:
            batch = np.asarray(batch, dtype="float64")
            if not self.built:
                self.build(batch.shape)
            if batch.shape[1:] != self.feature_shape:
                raise ValueError(
                    f"`adapt` needs batches of shape (B, {', '.join(map(str, self.feature_shape))})"
                    f". Received: {batch.shape}"
                )
            if not np.isfinite(batch).all():
                raise ValueError(
                    "`adapt` needs finite features that differ between images. "
                    "Received: NaN or infinity."
                )
            count += len(batch)
            total = total + batch.sum(axis=0)
            square = square + np.square(batch).sum(axis=0)
        if not count:
            raise ValueError("`adapt` needs at least one batch of features. Received none.")
        mean = total / count if self.center else np.zeros(self.feature_shape)
        # `spread` is the sum over features of E[(f - mean)^2].
        energy = (square / count).sum()
        spread = energy - np.square(mean).sum()
        # A smaller spread is a rounding error.
        if not spread > 1e-12 * energy:
            raise ValueError(
                "`adapt` needs finite features that differ between images. "
                f"Received: {count} equal feature maps."
            )
        rms = np.sqrt(spread / self.capsules)
        self.mean.assign(mean)
        self.feature_gain.assign(self.target_length / rms)

    def compute_output_shape(self, input_shape):
        shape = self._checked_shape(input_shape)
        return (input_shape[0], int(np.prod(shape)) // self.dim, self.dim)

    def _checked_shape(self, input_shape):
        shape = tuple(input_shape)[1:]
        if not 2 <= len(shape) <= 4 or None in shape:
            raise ValueError(
                "PrimaryCapsules needs a feature map (batch, height, width, features), a sequence "
                "(batch, length, features) or a volume, with all sizes but the batch known. "
                f"Received: input_shape={tuple(input_shape)}"
            )
        if int(np.prod(shape)) % self.dim:
            raise ValueError(
                f"`dim` must divide the {int(np.prod(shape))} features of an image. "
                f"Received: dim={self.dim}, input_shape={tuple(input_shape)}"
            )
        return shape
