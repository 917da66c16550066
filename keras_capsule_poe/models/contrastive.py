"""What models trained by contrastive divergence share: the update."""

import keras
from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.metrics import RelativeError
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
        self.loss_tracker = RelativeError(name="loss")

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
        is_known = _moves_by_momentums(self.optimizer)
        before = [] if is_known else [ops.copy(variable.value) for variable in variables]
        self.optimizer.apply(descents, variables)
        moved = [variable - start for variable, start in zip(variables, before)]
        update = _length(self.optimizer.momentums if is_known else moved)
        return update / ops.maximum(_length(variables), keras.config.epsilon())

    def fit(self, x=None, *args, sample_weight=None, **kwargs):
        """As `keras.Model.fit`, but that images cannot be weighed."""
        # Keras leaves out weights where there are no targets.
        self._refuse_weights(sample_weight)
        return super().fit(x, *args, **kwargs)

    def evaluate(self, x=None, *args, sample_weight=None, **kwargs):
        """As `keras.Model.evaluate`, but that images cannot be weighed."""
        self._refuse_weights(sample_weight)
        return super().evaluate(x, *args, **kwargs)

    def images_of(self, data):
        """Inputs and targets of a step.

        Raises:
            ValueError: If there are weights.
        """
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        self._refuse_weights(sample_weight)
        return x, y

    def _refuse_weights(self, sample_weight):
        if sample_weight is not None:
            raise ValueError(
                f"{type(self).__name__} is trained by a rule in which all images count alike: it "
                "takes no `sample_weight`. Repeat the images that shall count more."
            )

    def track(self, error, update, images):
        """Records the `mean_error` of so many images and the update's size.

        The loss, their relative error, is NaN when the update is not finite.
        """
        self.update_size.update_state(update)
        error = [part + 0 * ops.cast(update, part.dtype) for part in error]
        self.loss_tracker.add(images, *error)

    def get_config(self):
        return {**super().get_config(), "seed": self.seed}


# Options of an optimizer by which its momentums are not the update.
_CHANGES_UPDATES = (
    "nesterov",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "weight_decay",
    "use_ema",
    "gradient_accumulation_steps",
)


def _moves_by_momentums(optimizer):
    """Whether an optimizer's momentums are what its variables move by: those of plain SGD."""
    is_plain = type(optimizer) is keras.optimizers.SGD and optimizer.momentum > 0
    return is_plain and not any(getattr(optimizer, name) for name in _CHANGES_UPDATES)


def _length(tensors):
    # Eight bits of bfloat16 are too few to add up so many squares.
    return ops.sqrt(sum(ops.sum(ops.square(at_least_float32(tensor))) for tensor in tensors))
