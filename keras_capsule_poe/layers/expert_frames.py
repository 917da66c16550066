"""Whitening of expert capsules, one transform for each expert."""

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32, direction
from keras_capsule_poe.functions.units import probability


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ExpertFrames(keras.layers.Layer):
    """Squash of expert capsules with one whitening transform for each expert.

    `x_j = |squash(z_j)| n_j`, where n_j is the direction of `A_j (z_j - m_j)`. After `adapt`, m_j
    and `A_j = C_j^(-1/2)` whiten the expert's own images, so their orientations cover the sphere
    evenly. The length stays the probability that the expert is on. Before `adapt` the layer is
    the plain squash.

    Call arguments:
        z: Tensor (B, J, E), experts before the squash.

    Returns:
        Tensor (B, J, E), of lengths below one.

    Example:
        >>> frames = ExpertFrames()
        >>> z = np.random.default_rng(0).normal(size=(100, 2, 3)).astype("float32")
        >>> tuple(frames(z).shape)
        (100, 2, 3)
        >>> frames.adapt([z[:50, 0], z[50:, 1]])
    """

    def build(self, input_shape):
        capsules, dim = input_shape[1:]
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={1: capsules, 2: dim})
        self.center = self.add_weight(
            shape=(capsules, dim), initializer="zeros", trainable=False, name="center"
        )
        self.whitening = self.add_weight(
            shape=(capsules, dim, dim),
            initializer=lambda shape, dtype=None: ops.broadcast_to(
                ops.eye(dim, dtype=dtype), shape
            ),
            trainable=False,
            name="whitening",
        )

    def call(self, z):
        z = at_least_float32(z)
        centred = z - ops.cast(self.center, z.dtype)
        turned = ops.einsum("jef,bjf->bje", ops.cast(self.whitening, z.dtype), centred)
        return ops.cast(probability(z)[..., None] * direction(turned), self.compute_dtype)

    def is_identity(self):
        """Return ones for the experts without a fitted transform and zeros for the others, (J,)."""
        moved = ops.any(ops.not_equal(self.center, 0), axis=1)
        turned = ops.any(ops.not_equal(self.whitening, ops.eye(self.center.shape[1])), axis=(1, 2))
        return ops.cast(ops.logical_not(ops.logical_or(moved, turned)), "float32")

    def adapt(self, explained, causes=None, floor=1e-3):
        """Fit the whitening of each expert to the images that it explains.

        Args:
            explained: List of J arrays (N_j, E), pre-squash capsules of the images whose most
                probable expert is j. An expert with fewer than 2 E rows keeps its transform.
            causes: Function from an expert's index to an array (n, K), inputs of its first n rows.
                The whitened axes are rotated to follow their covariance with it. None: no rotation.
            floor: float, smallest variance of a direction, relative to the largest.

        Raises:
            ValueError: If there are not J arrays, or if a value is not finite.
        """
        center, whitening = np.array(self.center), np.array(self.whitening)
        if len(explained) != len(center):
            raise ValueError(
                f"`adapt` needs one array for each of {len(center)} experts. "
                f"Received: {len(explained)} arrays"
            )
        for expert, z in enumerate(explained):
            z = np.asarray(z, "float64")
            if not np.isfinite(z).all():
                raise ValueError(
                    f"`adapt` needs finite capsules. Received: NaN or infinity for expert {expert}"
                )
            if len(z) < 2 * center.shape[1]:
                continue
            variances, own = np.linalg.eigh(np.atleast_2d(np.cov(z.T)))
            if not variances[-1] > 0:
                continue
            variances = np.maximum(variances, floor * variances[-1])
            center[expert] = z.mean(axis=0)
            whitening[expert] = (own / np.sqrt(variances)) @ own.T
            if causes is not None:
                x = causes(expert)
                whitening[expert] = shared_axes(x, z[: len(x)]).T @ whitening[expert]
        self.center.assign(center)
        self.whitening.assign(whitening)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)


def shared_axes(causes, z):
    """Return axes (E, E) of z (N, E) sorted by covariance with `causes` (N, K), as in PLS."""
    z = np.asarray(z, "float64")
    shared = (np.asarray(causes, "float64") - np.mean(causes, axis=0)).T @ (z - z.mean(axis=0))
    axes = np.linalg.svd(shared.T @ shared)[0]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return axes * np.sign(largest)
