"""Training steps with a hand-derived gradient."""

import functools
import itertools
import warnings

import keras
from keras import ops

from keras_capsule_poe.core.arguments import Configured
from keras_capsule_poe.core.numerics import at_least_float32
from keras_capsule_poe.errors import TrainingWarning
from keras_capsule_poe.keras_private import compiled_metrics
from keras_capsule_poe.metrics import RelativeError
from keras_capsule_poe.models.base.inputs import FittedModel
from keras_capsule_poe.models.base.sharing import SharedOut

# Inputs of mean zero have this relative error if nothing was learned.
NOTHING, STEPS = 0.98, 20
# Metrics that a test does not measure.
_OF_TRAINING = ("update_size", "exchange_rate")


class ContrastiveModel(Configured, FittedModel, SharedOut, keras.Model):
    """Base model whose training step applies a hand-derived gradient, without autodiff.

    A subclass defines `train_step(data)` and `test_step(data)` as those of a `keras.Model` on
    TensorFlow. They compute means over the batch by `over_replicas`, which works on several
    devices, and return the logs. The training step calls `apply_ascent`. Compile with an optimizer,
    without `loss` and `metrics`.

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
    ...     def means(self, x, share=1.0):
    ...         return {"x": ops.mean(x, axis=0)}, {}
    ...     def train_step(self, data):
    ...         x, _ = self.images_of(data)
    ...         means, _ = self.over_replicas(self.means)(x)
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

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if keras.backend.backend() == "jax":
            for name in {"train_step", "test_step"} & set(vars(cls)):
                setattr(cls, name, _with_state(vars(cls)[name]))

    def _begin(self, x, options=None):
        # Without targets Keras would drop the weights silently.
        self._refuse_weights((options or {}).get("sample_weight"))
        # Check here and not in `compile`, which Keras does not call for a loaded model.
        if self.compiled and not (self.loss is None and compiled_metrics(self) is None):
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
        is_known = _moves_by_momentums(self.optimizer)
        before = [] if is_known else [ops.copy(variable.value) for variable in variables]
        self.optimizer.apply(descents, variables)
        moved = [variable - start for variable, start in zip(variables, before)]
        update = _length(self.optimizer.momentums if is_known else moved)
        return update / ops.maximum(_length(variables), keras.config.epsilon())

    def _fitted(self, history):
        losses = history.history.get("loss") or (0.0,)
        # Under a strategy Keras makes no int of a variable.
        steps = int(ops.convert_to_numpy(self.optimizer.iterations))
        # A few steps are not meant to learn much.
        if steps >= STEPS and not losses[-1] <= NOTHING:
            warnings.warn(
                f"{type(self).__name__} learned nothing: the relative error is {losses[-1]:.3g} "
                f"after {len(losses)} epochs, and 1 without any training. Train longer, choose "
                "another learning rate, or start the maps from images (`start_from_images`).",
                TrainingWarning,
                stacklevel=3,
            )

    def images_of(self, data):
        """Return inputs and targets of a batch; raise `ValueError` if it has sample weights."""
        self._need_backend()
        if not self.built:
            raise ValueError(
                f"{type(self).__name__} is not built: call `build((None, ...))` with the shape of "
                "its inputs, or give arrays."
            )
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


def _with_state(step):
    """Return a step of (data) that JAX calls with (state, data)."""

    @functools.wraps(step)
    def stateless(model, *arguments):
        if len(arguments) == 1:
            return step(model, *arguments)
        # JAX cannot assign inside a compiled function, so the step returns the new values.
        state, data = arguments
        groups = [model.trainable_variables, model.non_trainable_variables]
        groups += [model.optimizer.variables] if len(state) == 4 else []
        groups += [model.metrics_variables]
        chain = itertools.chain.from_iterable
        with keras.StatelessScope(list(zip(chain(groups), chain(state), strict=True))) as scope:
            logs = step(model, data)
        return logs, tuple([scope.get_current_value(v) for v in group] for group in groups)

    return stateless


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


def compiled_steps(model, shape):
    """Return a function that trains a compiled model on batches (S, *shape), one step for each.

    One compiled loop starts sooner than Keras' `fit`.
    """
    if keras.backend.backend() != "tensorflow":
        rows = (-1, *shape[1:])
        options = {"batch_size": shape[0], "shuffle": False, "verbose": 0}
        return lambda batches: model.fit(batches.reshape(rows), **options)
    import tensorflow as tf

    # Variables cannot be made inside of the graph.
    model.optimizer.build(model.trainable_variables)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, *shape), "float32")])
    def steps(batches):
        def step(i, _):
            return model.train_step(batches[i])["loss"]

        ops.fori_loop(0, ops.shape(batches)[0], step, ops.zeros(()))

    # TensorFlow warns of many traces if a search fits one model after the other, but not of
    # concrete functions.
    run = steps if tf.config.functions_run_eagerly() else steps.get_concrete_function()
    return lambda batches: run(tf.convert_to_tensor(batches))
