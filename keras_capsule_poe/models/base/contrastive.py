"""Training steps that assign variables, also as pure functions for JAX."""

import contextlib
import itertools
import warnings
from typing import Any

import keras
from keras import ops

from keras_capsule_poe.core.numerics import at_least_float32
from keras_capsule_poe.errors import TrainingWarning
from keras_capsule_poe.metrics import RelativeError
from keras_capsule_poe.models.base import inputs
from keras_capsule_poe.models.base.exportable import Exportable
from keras_capsule_poe.models.base.replicas import SharedOut, replicas_in_sync

# Inputs of mean zero have this relative error if nothing was learned.
NOTHING, STEPS = 0.98, 20
# PyTorch is not supported: its autograd tracks the variables that a step assigns.
BACKENDS = ("tensorflow", "jax")
# Metrics that a test does not measure.
_OF_TRAINING = ("update_size", "exchange_rate")


class FittedModel(Exportable):
    """Mixin for a `keras.Model` that can be fitted on the backends `BACKENDS` only."""

    @property
    def bounds(self):
        """Lower and upper bound of the values that the model is fitted on."""
        return inputs.FINITE

    def fit(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train as `keras.Model.fit`; the data also build an unbuilt model.

        Args:
            x: Array, `tf.data.Dataset`, `PyDataset` or generator of inputs.
            *args: Further arguments of `keras.Model.fit`.
            **kwargs: Further arguments of `keras.Model.fit`.

        Returns:
            `keras.callbacks.History`.

        Raises:
            ValueError: If a value is not finite or out of the bounds of the model.
        """
        x, given = self._begin(x), kwargs.get("validation_data")
        if isinstance(given, (tuple, list)):
            kwargs["validation_data"] = (self._begin(given[0]), *given[1:])
        elif given is not None:
            kwargs["validation_data"] = self._begin(given)
        with inputs.plain_errors():
            return super().fit(x, *args, **kwargs)  # type: ignore[misc]

    def evaluate(self, x=None, *args, **kwargs):
        """Evaluate as `keras.Model.evaluate`; the data also build an unbuilt model."""
        # `fit` has checked its validation data once.
        x = x if kwargs.get("_use_cached_eval_dataset") else self._begin(x)
        with inputs.plain_errors():
            return super().evaluate(x, *args, **kwargs)

    def _begin(self, x):
        """Check the data, build the model if needed, and return the data as `fit` takes them."""
        self._need_backend()
        x, first = inputs.checked(x, self.bounds)
        if not self.built and inputs.has_rank(first):
            strategy = getattr(self, "distribute_strategy", None)
            with strategy.scope() if strategy else contextlib.nullcontext():
                self.build((None, *first.shape[1:]))
        return x

    def _need_backend(self):
        backend = keras.backend.backend()
        if backend not in BACKENDS:
            raise RuntimeError(
                f"{type(self).__name__} is trained on the TensorFlow and Jax backends only: set "
                f"KERAS_BACKEND=tensorflow or jax. Received: backend={backend!r}"
            )


class ContrastiveModel(FittedModel, SharedOut, keras.Model):
    """Base model whose training step applies a hand-derived gradient, without autodiff.

    A subclass defines `training_step(data)` and `testing_step(data)`. They compute means over the
    batch by `over_replicas`, which works on several devices, and return the logs. The training
    step calls `apply_ascent`. Compile with an optimizer, without `loss` and `metrics`.

    Args:
        seed: Integer, the seed of all random numbers in training.
        **kwargs: `keras.Model` arguments.

    Raises:
        ValueError: If the dtype policy is `mixed_float16`, whose loss scaling would divide the
            gradient.

    Example:

    >>> class Centre(ContrastiveModel):
    ...     def build(self, input_shape):
    ...         self.centre = self.add_weight(input_shape[1:], "zeros")
    ...         self.built = True
    ...     def training_step(self, data):
    ...         x, _ = self.images_of(data)
    ...         means, _ = self.over_replicas(lambda x, _: ({"x": ops.mean(x, axis=0)}, {}), x)
    ...         return {"update": self.apply_ascent([(self.centre, means["x"] - self.centre)])}
    >>> model = Centre()
    >>> model.compile(keras.optimizers.SGD(1.0), jit_compile=False)
    >>> history = model.fit(np.full((8, 2), 0.5, "float32"), verbose=0)
    >>> ops.convert_to_numpy(model.centre).tolist()
    [0.5, 0.5]
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

    def train_step(self, *arguments):
        """Run `training_step` on (data), or on (state, data) under JAX."""
        self._check_built()
        if len(arguments) == 1:
            return self.training_step(*arguments)
        return self._at_values(self.training_step, *arguments, with_optimizer=True)

    def test_step(self, *arguments):
        """Run `testing_step` on (data), or on (state, data) under JAX."""
        self._check_built()
        if len(arguments) == 1:
            return self.testing_step(*arguments)
        return self._at_values(self.testing_step, *arguments, with_optimizer=False)

    def _check_built(self):
        self._need_backend()
        if not self.built:
            raise ValueError(
                f"{type(self).__name__} is not built: call `build((None, ...))` with the shape of "
                "its inputs, or give arrays."
            )

    def _at_values(self, step, state, data, with_optimizer):
        """Return the logs of a step and the values that it assigns."""
        # JAX cannot assign inside a compiled function, so the step returns the new values.
        groups = [self.trainable_variables, self.non_trainable_variables]
        groups += [self.optimizer.variables] if with_optimizer else []
        groups += [self.metrics_variables]
        chain = itertools.chain.from_iterable
        known = list(zip(chain(groups), chain(state), strict=True))
        with keras.StatelessScope(known) as scope:
            logs = step(data)
        return logs, tuple([scope.get_current_value(v) for v in group] for group in groups)

    def _begin(self, x):
        # Check here and not in `compile`, which Keras does not call for a loaded model.
        if self.compiled and not (self.loss is None and self._compile_metrics is None):
            raise ValueError(
                f"{type(self).__name__} is trained by a rule of its own and reports its own "
                "figures: compile it with an optimizer and neither `loss` nor `metrics`."
            )
        return super()._begin(x)

    def trains(self, *variables):
        """Return True if all given variables are trainable."""
        trainable = {id(variable) for variable in self.trainable_variables}
        return all(id(variable) in trainable for variable in variables)

    def apply_ascent(self, pairs):
        """Apply ascent directions to their variables through the optimizer.

        Args:
            pairs: Iterable of (variable, ascent). The ascent is the mean over the batch of the
                gradient of log P minus penalties. Variables that are not trainable stay unchanged.

        Returns:
            Scalar, the norm of the update divided by the norm of the variables.
        """
        pairs = [pair for pair in pairs if self.trains(pair[0])]
        if not pairs:
            return ops.zeros(())
        variables = [variable for variable, _ in pairs]
        descents = [ops.cast(-ascent, variable.dtype) for variable, ascent in pairs]
        replicas = replicas_in_sync(self)
        if replicas > 1:
            # Keras sums gradients over replicas, but all replicas have the same means.
            descents = [descent / replicas for descent in descents]
        is_known = _moves_by_momentums(self.optimizer)
        before = [] if is_known else [ops.copy(variable.value) for variable in variables]
        self.optimizer.apply(descents, variables)
        moved = [variable - start for variable, start in zip(variables, before)]
        update = _length(self.optimizer.momentums if is_known else moved)
        return update / ops.maximum(_length(variables), keras.config.epsilon())

    def fit(self, x: Any = None, *args: Any, sample_weight: Any = None, **kwargs: Any) -> Any:
        """Train as `keras.Model.fit`, without sample weights."""
        # Without targets Keras would drop the weights silently.
        self._refuse_weights(sample_weight)
        history = super().fit(x, *args, **kwargs)
        self._warn_of_nothing(history)
        return history

    def _warn_of_nothing(self, history):
        """Warn if the relative error after training is that of zeros."""
        losses = history.history.get("loss") or (0.0,)
        # A few steps are not meant to learn much.
        if int(self.optimizer.iterations) >= STEPS and not losses[-1] <= NOTHING:
            warnings.warn(
                f"{type(self).__name__} learned nothing: the relative error is {losses[-1]:.3g} "
                f"after {len(losses)} epochs, and 1 without any training. Train longer, choose "
                "another learning rate, or start the maps from images (`start_from_images`).",
                TrainingWarning,
                stacklevel=3,
            )

    def evaluate(self, x=None, *args, sample_weight=None, **kwargs):
        """Evaluate as `keras.Model.evaluate`, without sample weights."""
        self._refuse_weights(sample_weight)
        return super().evaluate(x, *args, **kwargs)

    def images_of(self, data):
        """Return inputs and targets of a batch; raise `ValueError` if it has sample weights."""
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
        """Record the `mean_error` of images and the relative size of the update, None in a test."""
        if update is not None:
            self.update_size.update_state(update)
            # A non-finite update makes the loss NaN.
            error = [part + 0 * ops.cast(update, part.dtype) for part in error]
        self.loss_tracker.add(images, *error)

    def results(self, update):
        """Return the results of all metrics by name; `update` None leaves out those of training."""
        left_out = _OF_TRAINING if update is None else ()
        return {m.name: m.result() for m in self.metrics if m.name not in left_out}

    def get_config(self):
        return {**super().get_config(), "seed": self.seed}


# Optimizer options that make the update differ from the momentums.
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
    """Return True for plain SGD with momentum, whose momentums are the updates."""
    is_plain = type(optimizer) is keras.optimizers.SGD and optimizer.momentum > 0
    return is_plain and not any(getattr(optimizer, name) for name in _CHANGES_UPDATES)


def _length(tensors):
    # bfloat16 is too coarse for a sum of so many squares.
    return ops.sqrt(sum(ops.sum(ops.square(at_least_float32(tensor))) for tensor in tensors))
