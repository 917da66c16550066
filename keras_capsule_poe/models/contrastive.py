"""What models trained by contrastive divergence share: the update, and which backend trains."""

import keras
from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.models.replicas import SharedOut


class TensorFlowTraining:
    """A Keras model whose own `train_step` is written for TensorFlow alone.

    On other backends it computes, is saved and loaded, but is not fitted.
    """

    def fit(self, x=None, *args, **kwargs):
        """As `keras.Model.fit`; arrays build a model that is not built yet."""
        self._need_tensorflow()
        if not self.built and hasattr(x, "shape"):
            with self.distribute_strategy.scope():
                self.build((None, *x.shape[1:]))
        return super().fit(x, *args, **kwargs)

    def evaluate(self, *args, **kwargs):
        """As `keras.Model.evaluate`."""
        self._need_tensorflow()
        return super().evaluate(*args, **kwargs)

    def _need_tensorflow(self):
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                f"{type(self).__name__} is trained on the TensorFlow backend only: set "
                f"KERAS_BACKEND=tensorflow. Received: backend={keras.backend.backend()!r}"
            )


class ContrastiveModel(SharedOut, TensorFlowTraining, keras.Model):
    """A model whose `train_step` applies a contrastive-divergence gradient derived by hand.

    Subclasses find the gradient and whatever else a step needs as means over images, by
    `over_replicas`, and call `apply_ascent`. No autodiff takes part.

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

    def apply_ascent(self, pairs):
        """Moves variables along their ascents, through the optimizer, in one step.

        Args:
            pairs: Pairs (variable, ascent): a tensor of the variable's shape, the mean over the
                images of the direction that raises log P, penalties subtracted.

        Returns:
            Scalar, the length of the update relative to that of the variables.
        """
        pairs = list(pairs)
        variables = [variable for variable, _ in pairs]
        descents = [ops.cast(-ascent, variable.dtype) for variable, ascent in pairs]
        replicas = self.distribute_strategy.num_replicas_in_sync
        if replicas > 1:
            # Keras sums over the replicas of a strategy, which have the same means.
            descents = [descent / replicas for descent in descents]
        self.optimizer.apply(descents, variables)
        momentums = getattr(self.optimizer, "momentums", None)
        if momentums:
            update = _length(momentums)
        else:
            update = self.optimizer.learning_rate * _length(descents)
        return update / ops.maximum(_length(variables), keras.config.epsilon())

    def track(self, loss, update):
        """Records the loss, which is NaN when the update is not finite, and the update's size."""
        self.update_size.update_state(update)
        self.loss_tracker.update_state(loss + 0 * ops.cast(update, loss.dtype))

    def get_config(self):
        return {**super().get_config(), "seed": self.seed}


def _length(tensors):
    # Eight bits of bfloat16 are too few to add up so many squares.
    return ops.sqrt(sum(ops.sum(ops.square(at_least_float32(tensor))) for tensor in tensors))
