"""Training metrics of capsules."""

from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.numerics import at_least_float32


def relative_error(x_model: Tensor, x: Tensor) -> Tensor:
    """Return the relative squared error `|x~ - x|^2 / |x|^2` over a batch.

    Args:
        x_model: Tensor, reconstruction x~ of x.
        x: Tensor of the same shape.

    Returns:
        Scalar tensor. If x is zero, the squared error itself.

    Example:
        >>> float(relative_error(np.zeros((2, 3)), np.ones((2, 3))))
        1.0
    """
    return relative_error_of(*error_and_size(x_model, x))


def mean_error(x_model, x):
    """Return |x~ - x|^2 and |x|^2, averaged over images, a list for `relative_error_of`."""
    images = _images(x)
    return [part / ops.cast(images, part.dtype) for part in error_and_size(x_model, x)]


def _images(x):
    # An empty batch must have zero means.
    return ops.maximum(ops.shape(x)[0], 1)


def relative_error_of(error, size):
    """Return error / size, or the error if size is zero."""
    return error / _or_one(size)


def _or_one(size):
    # Replace only exact zeros: a small size has a valid relative error.
    size = ops.convert_to_tensor(size)
    return ops.where(ops.equal(size, 0), ops.ones_like(size), size)


def error_and_size(x_model, x, axis=None):
    """Return |x~ - x|^2 and |x|^2, summed over `axis` (None: all axes)."""
    x_model = at_least_float32(x_model)
    x = ops.cast(at_least_float32(x), x_model.dtype)
    return ops.sum(ops.square(x_model - x), axis), ops.sum(ops.square(x), axis)


def expert_usage(p):
    """Return J times each expert's share of probabilities p (B, J): (J,), one if balanced."""
    share = ops.mean(p / ops.maximum(ops.sum(p, axis=-1, keepdims=True), 1e-30), axis=0)
    return share * p.shape[-1]


def weights_of_images(sample_weight, dtype):
    """Return weights (B,) from sample weights (B,) or (B, 1), or 1 for None."""
    # A column would multiply numbers (B,) to a matrix (B, B).
    return 1 if sample_weight is None else ops.reshape(ops.cast(sample_weight, dtype), (-1,))


def _add(total, images, mean):
    """Add the sum over `images` images with this mean to a variable."""
    total.assign(total + ops.cast(images, total.dtype) * ops.cast(mean, total.dtype))


@keras.saving.register_keras_serializable("keras_capsule_poe")
class RelativeError(keras.metrics.Metric):
    """Relative squared error `|x~ - x|^2 / |x|^2` over all images of an epoch.

    Example:
        >>> metric = RelativeError()
        >>> metric.update_state(np.zeros((3, 2)), np.ones((3, 2)))
        >>> metric.update_state(np.ones((1, 2)), np.ones((1, 2)))
        >>> float(metric.result())
        0.75
    """

    def __init__(self, name: str = "relative_error", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.error = self.add_variable((), "zeros", dtype=self.dtype, name="error")
        self.size = self.add_variable((), "zeros", dtype=self.dtype, name="size")

    def update_state(self, x_model, x, sample_weight=None):
        """Accumulate reconstructions and images (B, ...), with weights (B,) or (B, 1), or None."""
        axes = tuple(range(1, len(ops.shape(x))))
        weights = weights_of_images(sample_weight, self.dtype)
        parts = [ops.cast(part, self.dtype) for part in error_and_size(x_model, x, axes)]
        self.add(1, *(ops.sum(weights * part) for part in parts))

    def add(self, images, error, size):
        """Accumulate the `mean_error` of so many images."""
        _add(self.error, images, error)
        _add(self.size, images, size)

    def result(self):
        return relative_error_of(self.error, self.size)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ExpertUsage(keras.metrics.Mean):
    """Utilization of the least used expert, averaged over batches. One is perfect balance.

    The utilization of an expert is its share of the probability of a batch, times J.

    Example:
        >>> from keras_capsule_poe.metrics import expert_usage
        >>> metric = ExpertUsage()
        >>> metric.update_state(expert_usage(np.array([[0.9, 0.3], [0.6, 0.6]], "float32")))
        >>> round(float(metric.result()), 3)
        0.75
    """

    def __init__(self, name: str = "rarest_usage", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def update_state(self, usage, sample_weight=None):
        """Accumulate the `expert_usage` (J,) of a batch."""
        super().update_state(ops.min(usage), sample_weight)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class OrientationConcentration(keras.metrics.Metric):
    """Concentration of the orientations of capsules, mean over j of `|sum_b x_j| / sum_b |x_j|`.

    It is one if each capsule always points the same way. It is near zero if the orientations
    cover the sphere.

    Args:
        capsules: int, J.
        dim: int, E.

    Example:
        >>> metric = OrientationConcentration(capsules=5, dim=3)
        >>> metric.update_state(np.ones((2, 5, 3), "float32"))
        >>> round(float(metric.result()), 3)
        1.0
    """

    def __init__(
        self, capsules: int, dim: int, name: str = "orientation_concentration", **kwargs: Any
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.capsules = capsules
        self.dim = dim
        options = {"dtype": self.dtype}
        self.resultant = self.add_variable((capsules, dim), "zeros", name="resultant", **options)
        self.lengths = self.add_variable((capsules,), "zeros", name="lengths", **options)

    def update_state(self, x, sample_weight=None):
        """Accumulate capsules (B, J, E), with weights (B,) or (B, 1), or None."""
        x = ops.cast(x, self.dtype)
        if tuple(x.shape[1:]) != (self.capsules, self.dim):
            raise ValueError(
                f"`x` must be {self.capsules} capsules of {self.dim} dimensions for each image. "
                f"Received: x.shape={tuple(x.shape)}"
            )
        if sample_weight is not None:
            x = x * weights_of_images(sample_weight, x.dtype)[:, None, None]
        self.add(_images(x), *self.means(x))

    @staticmethod
    def means(x):
        """Return the means over a batch (B, J, E) of x_j, (J, E), and of |x_j|, (J,)."""
        lengths = ops.sqrt(ops.sum(ops.square(x), axis=-1))
        return [ops.sum(part, 0) / ops.cast(_images(x), part.dtype) for part in (x, lengths)]

    def add(self, images, resultant, lengths):
        """Accumulate the `means` of so many images."""
        _add(self.resultant, images, resultant)
        _add(self.lengths, images, lengths)

    def result(self):
        resultant = ops.sqrt(ops.sum(ops.square(self.resultant), axis=-1))
        return ops.mean(resultant / _or_one(self.lengths))

    def get_config(self):
        return {**super().get_config(), "capsules": self.capsules, "dim": self.dim}
