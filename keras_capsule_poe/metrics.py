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
        Scalar tensor; one for a model that gives zeros.

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
    images = ops.cast(ops.shape(x)[0], "float32")
    return [part / ops.cast(images, part.dtype) for part in error_and_size(x_model, x)]


def relative_error_of(error, size):
    """The relative error whose two parts, sums or means over images, these are.

    Examples:

    >>> float(relative_error_of(3.0, 12.0))
    0.25
    """
    return error / ops.maximum(size, keras.config.epsilon())


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
        """Takes the capsules of a batch, (B, J, E)."""
        self.add(ops.shape(x)[0], *self.means(ops.cast(x, self.dtype)))

    @staticmethod
    def means(x):
        """Means over the images of capsules (B, J, E): of x_j (J, E), and of |x_j| (J,)."""
        return ops.mean(x, axis=0), ops.mean(ops.sqrt(ops.sum(ops.square(x), axis=-1)), axis=0)

    def add(self, images, resultant, lengths):
        """Takes the `means` of so many images."""
        images = ops.cast(images, self.dtype)
        self.resultant.assign(self.resultant + images * ops.cast(resultant, self.dtype))
        self.lengths.assign(self.lengths + images * ops.cast(lengths, self.dtype))

    def result(self):
        resultant = ops.sqrt(ops.sum(ops.square(self.resultant), axis=-1))
        return ops.mean(resultant / ops.maximum(self.lengths, keras.config.epsilon()))

    def get_config(self):
        return {**super().get_config(), "capsules": self.capsules, "dim": self.dim}
