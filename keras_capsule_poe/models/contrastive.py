"""What models trained by contrastive divergence share: the update and its metrics."""

import keras
from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32


def relative_error(x_model, x):
    """|x~ - x|^2 / |x|^2 over the whole batch, a scalar."""
    x, x_model = at_least_float32(x), at_least_float32(x_model)
    total = ops.maximum(ops.sum(ops.square(x)), keras.config.epsilon())
    return ops.sum(ops.square(x_model - x)) / total


@keras.saving.register_keras_serializable("keras_capsule_poe")
class OrientationConcentration(keras.metrics.Metric):
    """Mean over the capsules of |sum_b x_j| / sum_b |x_j|.

    One: a capsule always points the same way. Near zero: its orientations cover the sphere.

    Args:
        capsules: int, J.
        dim: int, E.
        **kwargs: Base metric arguments.
    """

    def __init__(self, capsules, dim, name="orientation_concentration", **kwargs):
        super().__init__(name=name, **kwargs)
        self.capsules = capsules
        self.dim = dim
        self.resultant = self.add_variable((capsules, dim), "zeros", name="resultant")
        self.lengths = self.add_variable((capsules,), "zeros", name="lengths")

    def update_state(self, x, sample_weight=None):
        x = ops.cast(x, self.dtype)
        self.resultant.assign(self.resultant + ops.sum(x, axis=0))
        self.lengths.assign(
            self.lengths + ops.sum(ops.sqrt(ops.sum(ops.square(x), axis=-1)), axis=0)
        )

    def result(self):
        resultant = ops.sqrt(ops.sum(ops.square(self.resultant), axis=-1))
        return ops.mean(resultant / ops.maximum(self.lengths, keras.config.epsilon()))

    def get_config(self):
        return {**super().get_config(), "capsules": self.capsules, "dim": self.dim}


class ContrastiveModel(keras.Model):
    """A model whose `train_step` applies a contrastive-divergence gradient derived by hand.

    Subclasses compute the gradient and call `apply_ascent`. No autodiff takes part.

    Args:
        seed: int, what every random choice while training derives from.
        **kwargs: Base model arguments.

    Raises:
        ValueError: With the policy `mixed_float16`, which would divide a hand-made gradient by
            the loss scale.
    """

    def __init__(self, seed=0, **kwargs):
        super().__init__(**kwargs)
        if self.dtype_policy.compute_dtype == "float16":
            raise ValueError(
                "The loss scaling of float16 divides hand-derived gradients; use "
                f"'mixed_bfloat16' or 'float32'. Received: dtype={self.dtype_policy.name!r}"
            )
        self.seed = seed
        self.update_size = keras.metrics.Mean(name="update_size")
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def apply_ascent(self, kernel, gradient, penalty):
        """Moves `kernel` up the gradient and down the penalty's, through the optimizer.

        Args:
            kernel: Variable.
            gradient: Tensor of its shape, mean over this replica's batch.
            penalty: Tensor of its shape, gradient of the regulariser.

        Returns:
            Scalar, the length of the update relative to that of the weights.
        """
        descent = ops.cast(penalty - gradient, kernel.dtype)
        if self.distribute_strategy.num_replicas_in_sync > 1:
            # The optimizer sums over replicas.
            descent = descent / self.distribute_strategy.num_replicas_in_sync
        self.optimizer.apply([descent], [kernel])
        momentums = getattr(self.optimizer, "momentums", None)
        if momentums:
            update = _length(momentums[0])
        else:
            update = self.optimizer.learning_rate * _length(descent)
        return update / ops.maximum(_length(kernel), keras.config.epsilon())

    def track(self, loss, update):
        """Records the loss, which is NaN when the update is not finite, and the update's size."""
        self.update_size.update_state(update)
        self.loss_tracker.update_state(loss + 0 * update)

    def get_config(self):
        return {**super().get_config(), "seed": self.seed}


def _length(x):
    return ops.sqrt(ops.sum(ops.square(x)))
