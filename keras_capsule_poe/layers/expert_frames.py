"""Expert frames: coordinates in which each expert's orientations fill the whole sphere."""

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32, direction
from keras_capsule_poe.functions.units import probability


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ExpertFrames(keras.layers.Layer):
    """Turns expert capsules into the frame of the images that each of them explains.

    x_j = |squash(z_j)| n_j with n_j the direction of A_j (z_j - m_j). The length stays the
    probability that the expert is on. After `adapt`, m_j and A_j = C_j^(-1/2) are the mean and
    the whitening of the expert's own images, so that its orientations are spread evenly and a
    plain Gaussian, squashed, lands where training went. That leaves a rotation free: given what
    the experts are caused by, the dimensions follow what varies most in it. Without `adapt` the
    layer is the squash.

    Call arguments:
        z: Tensor (B, J, E), experts before the squash.

    Returns:
        Tensor (B, J, E), of lengths below one.

    Examples:

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
        """One for each expert that has no frame of its own, else zero: a tensor (J,)."""
        moved = ops.any(ops.not_equal(self.center, 0), axis=1)
        turned = ops.any(ops.not_equal(self.whitening, ops.eye(self.center.shape[1])), axis=(1, 2))
        return ops.cast(ops.logical_not(ops.logical_or(moved, turned)), "float32")

    def adapt(self, explained, causes=None, floor=1e-3):
        """Sets each expert's frame from the images that it explains.

        Args:
            explained: list of J arrays (N_j, E), the experts before the squash of the images on
                which they were the most probable. One of fewer than 2 E rows keeps its frame.
            causes: Function of an expert's index to an array (n, K), what its first n rows are
                caused by, for its dimensions to follow, see `shared_axes`; `None`: whitening
                turns nothing.
            floor: float, the smallest variance of a direction, relative to the largest.

        Raises:
            ValueError: If there are not J arrays, or a value is not finite.
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
    """The axes of z along which it varies most with its causes, the strongest first.

    Right singular vectors of their covariance, as in partial least squares. A whitened capsule
    can be turned at will; so turned, its first dimensions are what changes the image most.

    Args:
        causes: Array (N, K).
        z: Array (N, E).

    Returns:
        Array (E, E), orthonormal columns; each points to where its largest entry is positive.

    Examples:

    >>> causes = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> shared_axes(causes, causes @ np.array([[0.0, 1.0], [1.0, 0.0]]))
    array([[0., 1.],
           [1., 0.]])
    """
    z = np.asarray(z, "float64")
    shared = (np.asarray(causes, "float64") - np.mean(causes, axis=0)).T @ (z - z.mean(axis=0))
    axes = np.linalg.svd(shared.T @ shared)[0]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return axes * np.sign(largest)
