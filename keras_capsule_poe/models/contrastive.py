"""What models trained by contrastive divergence share: the update."""

import keras
from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.models.pure_steps import PureSteps
from keras_capsule_poe.models.replicas import SharedOut, replicas_in_sync


class ContrastiveModel(PureSteps, SharedOut, keras.Model):
    """A model whose `training_step` applies a contrastive-divergence gradient derived by hand.

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

    def _begin(self, x):
        # No `compile` of its own: Keras would not call it for a model that is loaded.
        if self.compiled and not (self.loss is None and self._compile_metrics is None):
            raise ValueError(
                f"{type(self).__name__} is trained by a rule of its own and reports its own "
                "figures: compile it with an optimizer and neither `loss` nor `metrics`."
            )
        super()._begin(x)

    def trains(self, *variables):
        """Whether none of some variables is frozen."""
        trainable = {id(variable) for variable in self.trainable_variables}
        return all(id(variable) in trainable for variable in variables)

    def apply_ascent(self, pairs):
        """Moves variables along their ascents, through the optimizer, in one step.

        Args:
            pairs: Pairs (variable, ascent): a tensor of the variable's shape, the mean over the
                images of the direction that raises log P, penalties subtracted. Variables that
                are not trainable stay.

        Returns:
            Scalar, the length of the update relative to that of the variables.
        """
        pairs = [pair for pair in pairs if self.trains(pair[0])]
        if not pairs:
            return ops.zeros(())
        variables = [variable for variable, _ in pairs]
        descents = [ops.cast(-ascent, variable.dtype) for variable, ascent in pairs]
        replicas = replicas_in_sync(self)
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
