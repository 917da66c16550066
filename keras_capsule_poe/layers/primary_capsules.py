"""Primary capsules: a feature map split into small vectors."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.core.numerics import squash, unsquash


@keras.saving.register_keras_serializable("keras_capsule_poe")
class PrimaryCapsules(keras.layers.Layer):
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
        if not isinstance(dim, int) or dim < 1:
            raise ValueError(f"`dim` must be a positive integer. Received: dim={dim!r}")
        for name, value in (("gain", gain), ("target_length", target_length)):
            if not value > 0:
                raise ValueError(f"`{name}` must be above zero. Received: {name}={value!r}")
        self.dim = dim
        self.gain = gain
        self.center = center
        self.target_length = target_length

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

    def get_config(self):
        return {
            **super().get_config(),
            "dim": self.dim,
            "gain": self.gain,
            "center": self.center,
            "target_length": self.target_length,
        }
