"""What is measured while capsules learn."""

import keras
from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32


def relative_error(x_model, x):
    """|x~ - x|^2 / |x|^2 over the whole batch.

    Args:
        x_model: Tensor, what a model makes of `x`.
        x: Tensor of the same shape.

    Returns:
        Scalar tensor; one for a model that gives zeros, |x~|^2 where x is zero itself.

    Examples:

    >>> float(relative_error(np.zeros((2, 3)), np.ones((2, 3))))
    1.0
    """
    return relative_error_of(*error_and_size(x_model, x))


def mean_error(x_model, x):
    """The relative error of images as two means over them, which `relative_error_of` takes.

    Args:
        x_model, x: See `relative_error`.

    Examples:

    >>> [float(part) for part in mean_error(np.ones((2, 3)), 2 * np.ones((2, 3)))]
    [3.0, 12.0]
    """
    images = _images(x)
    return [part / ops.cast(images, part.dtype) for part in error_and_size(x_model, x)]


def _images(x):
    # Of no images the sums are zero, and so shall be the means.
    return ops.maximum(ops.shape(x)[0], 1)


def relative_error_of(error, size):
    """The relative error whose two parts, sums or means over images, these are.

    Examples:

    >>> float(relative_error_of(3.0, 12.0))
    0.25
    """
    return error / _or_one(size)


def _or_one(size):
    # No floor: what is small all the same has a relative error.
    size = ops.convert_to_tensor(size)
    return ops.where(ops.equal(size, 0), ops.ones_like(size), size)


def error_and_size(x_model, x, axis=None):
    """|x~ - x|^2 and |x|^2, the two parts of `relative_error`, to be added up over batches.

    Args:
        x_model, x: See `relative_error`.
        axis: int or tuple, the axes summed over; `None`: all.

    Returns:
        Two tensors, without the axes summed over.

    Examples:

    >>> [float(part) for part in error_and_size(np.ones((2, 3)), 2 * np.ones((2, 3)))]
    [6.0, 24.0]
    """
    x_model = at_least_float32(x_model)
    x = ops.cast(at_least_float32(x), x_model.dtype)
    return ops.sum(ops.square(x_model - x), axis), ops.sum(ops.square(x), axis)


def expert_usage(p):
    """Share of a batch's probability that each expert takes, times J: one where balanced.

    Args:
        p: Tensor (B, J), probabilities that the experts are on.

    Returns:
        Tensor (J,), of mean one.

    Examples:

    >>> expert_usage(np.array([[0.9, 0.3], [0.6, 0.6]], "float32")).numpy().round(3).tolist()
    [1.25, 0.75]
    """
    share = ops.mean(p / ops.maximum(ops.sum(p, axis=-1, keepdims=True), 1e-30), axis=0)
    return share * p.shape[-1]


def _add(total, images, mean):
    """Adds to a variable the sum over so many images that have this mean."""
    total.assign(total + ops.cast(images, total.dtype) * ops.cast(mean, total.dtype))


@keras.saving.register_keras_serializable("keras_capsule_poe")
class RelativeError(keras.metrics.Metric):
    """|x~ - x|^2 / |x|^2 of all images, however they are parted into batches.

    Args:
        name: str.
        **kwargs: Base metric arguments.

    Examples:

    >>> metric = RelativeError()
    >>> metric.update_state(np.zeros((3, 2)), np.ones((3, 2)))
    >>> metric.update_state(np.ones((1, 2)), np.ones((1, 2)))
    >>> float(metric.result())
    0.75
    """

    def __init__(self, name="relative_error", **kwargs):
        super().__init__(name=name, **kwargs)
        self.error = self.add_variable((), "zeros", name="error")
        self.size = self.add_variable((), "zeros", name="size")

    def update_state(self, x_model, x, sample_weight=None):
        """Takes what a model makes of a batch, and the batch; weights (B,) are of its images."""
        axes = tuple(range(1, len(ops.shape(x))))
        weights = ops.cast(1 if sample_weight is None else sample_weight, self.dtype)
        parts = [ops.cast(part, self.dtype) for part in error_and_size(x_model, x, axes)]
        self.add(1, *(ops.sum(weights * part) for part in parts))

    def add(self, images, error, size):
        """Takes the `mean_error` of so many images."""
        _add(self.error, images, error)
        _add(self.size, images, size)

    def result(self):
        return relative_error_of(self.error, self.size)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ExpertUsage(keras.metrics.Mean):
    """Mean over the batches of the least used expert's `expert_usage`: one where balanced.

    Args:
        name: str.
        **kwargs: Base metric arguments.

    Examples:

    >>> metric = ExpertUsage()
    >>> metric.update_state(expert_usage(np.array([[0.9, 0.3], [0.6, 0.6]], "float32")))
    >>> round(float(metric.result()), 3)
    0.75
    """

    def __init__(self, name="rarest_usage", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, usage, sample_weight=None):
        """Takes the `expert_usage` of a batch, (J,)."""
        super().update_state(ops.min(usage), sample_weight)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class OrientationConcentration(keras.metrics.Metric):
    """Mean over the capsules of |sum_b x_j| / sum_b |x_j|.

    One: a capsule always points the same way. Near zero: its orientations cover the sphere.

    Args:
        capsules: int, J.
        dim: int, E.
        name: str.
        **kwargs: Base metric arguments.

    Examples:

    >>> metric = OrientationConcentration(capsules=5, dim=3)
    >>> metric.update_state(np.ones((2, 5, 3), "float32"))
    >>> round(float(metric.result()), 3)
    1.0
    """

    def __init__(self, capsules, dim, name="orientation_concentration", **kwargs):
        super().__init__(name=name, **kwargs)
        self.capsules = capsules
        self.dim = dim
        self.resultant = self.add_variable((capsules, dim), "zeros", name="resultant")
        self.lengths = self.add_variable((capsules,), "zeros", name="lengths")

    def update_state(self, x, sample_weight=None):
        """Takes the capsules of a batch, (B, J, E); weights (B,) are of its images."""
        x = ops.cast(x, self.dtype)
        if tuple(x.shape[1:]) != (self.capsules, self.dim):
            raise ValueError(
                f"`x` must be {self.capsules} capsules of {self.dim} dimensions for each image. "
                f"Received: x.shape={tuple(x.shape)}"
            )
        if sample_weight is not None:
            x = x * ops.cast(sample_weight, x.dtype)[:, None, None]
        self.add(_images(x), *self.means(x))

    @staticmethod
    def means(x):
        """Means over the images of capsules (B, J, E): of x_j (J, E), and of |x_j| (J,)."""
        lengths = ops.sqrt(ops.sum(ops.square(x), axis=-1))
        return [ops.sum(part, 0) / ops.cast(_images(x), part.dtype) for part in (x, lengths)]

    def add(self, images, resultant, lengths):
        """Takes the `means` of so many images."""
        _add(self.resultant, images, resultant)
        _add(self.lengths, images, lengths)

    def result(self):
        resultant = ops.sqrt(ops.sum(ops.square(self.resultant), axis=-1))
        return ops.mean(resultant / _or_one(self.lengths))

    def get_config(self):
        return {**super().get_config(), "capsules": self.capsules, "dim": self.dim}
