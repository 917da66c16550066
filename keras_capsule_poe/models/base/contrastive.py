"""Training steps with a hand-derived gradient, and steps on several devices and microbatches."""

import contextlib
import functools
import itertools
import warnings

import keras
from keras import ops, tree

from keras_capsule_poe.core.numerics import at_least_float32, whole_number
from keras_capsule_poe.core.sharding import current_rows, rows_at_hand
from keras_capsule_poe.errors import TrainingWarning
from keras_capsule_poe.keras_private import all_layers, compiled_metrics
from keras_capsule_poe.layers.capsules import BatchDropout
from keras_capsule_poe.metrics import RelativeError
from keras_capsule_poe.models.base.inputs import FittedModel

# Inputs of mean zero have this relative error if nothing was learned.
NOTHING, STEPS = 0.98, 20
# Metrics that a test does not measure.
_OF_TRAINING = ("update_size", "exchange_rate")


def replicas_in_sync(model):
    """Return the number of replicas over which Keras sums a model's gradients."""
    strategy = getattr(model, "distribute_strategy", None)
    return 1 if strategy is None else strategy.num_replicas_in_sync


class SharedOut:
    """Mixin for models whose training step is one update with means over the whole batch."""

    # The training engine sets it to share_out(of_part, data) to run of_part on several devices.
    share_out = None

    def make_train_function(self, force=False):
        """Build the optimizer before tracing, to avoid a second trace."""
        if self.built and self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def over_replicas(self, function, data):
        """Return batch means of a function that runs once per device.

        Args:
            function: Function of (rows of `data`, their share of the batch). It returns a dict of
                means over its rows, and a dict of values that are the same for all rows. It must
                not assign variables.
            data: Tensor (B, ...), or a tuple of them.

        Returns:
            Tuple of the dict of means over the whole batch and the dict of common values.
        """

        def of_part(part, start, total, share):
            with rows_at_hand(start, total):
                return _all_reduced(*function(part, share), share)

        if self.share_out is not None:
            return self.share_out(of_part, data)
        context = _context()
        if context is None:
            return function(data, 1.0)
        number = context.num_replicas_in_sync
        own = ops.one_hot(context.replica_id_in_sync_group, number, dtype="int32")
        images = ops.shape(tree.flatten(data)[0])[0]
        counts = context.all_reduce("SUM", own * images)
        start = ops.sum(counts * (1 - ops.cumsum(own)))
        total = ops.sum(counts)
        return of_part(data, start, total, ops.cast(images, "float32") / ops.cast(total, "float32"))


def _all_reduced(means, same, share):
    """Return the means over all replicas and the values of the first replica."""
    context = _context()
    if context is None:
        return means, same
    is_first = ops.equal(context.replica_id_in_sync_group, 0)
    parts = tree.map_structure(lambda mean: ops.cast(share, mean.dtype) * mean, means)
    firsts = tree.map_structure(lambda x: ops.where(is_first, x, ops.zeros_like(x)), same)
    # all_reduce does not accept an empty dict.
    summed = context.all_reduce("SUM", firsts) if tree.flatten(firsts) else firsts
    return context.all_reduce("SUM", parts), summed


def _context():
    """Return the replica context if there are several replicas, else None."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return None if context is None or context.num_replicas_in_sync == 1 else context


class ContrastiveModel(FittedModel, SharedOut, keras.Model):
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
    ...         means, _ = self.over_replicas(self.means, x)
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

    def _fitted(self, history):
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

    def get_config(self):
        return {**super().get_config(), "seed": self.seed}


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


class SharedOutGradients(SharedOut):
    """Mixin for models trained by backpropagation, on one or several devices."""

    _microbatch = None

    @property
    def microbatch(self):
        """Maximum number of images per gradient computation; None takes the whole batch.

        The gradients are accumulated. A step equals the full-batch step up to rounding and needs
        less memory. It needs TensorFlow. It excludes batch normalization, random layers other than
        `BatchDropout`, and layers that update their own weights. Models are saved without it.
        """
        return self._microbatch

    @microbatch.setter
    def microbatch(self, value):
        self._check_microbatch(None if value is None else whole_number("microbatch", value))
        self._microbatch = value
        # Drop the function traced for another size.
        self.train_function = None

    def _check_microbatch(self, value):
        """Raise `ValueError` if the step cannot use micro-batches."""
        if value is None:
            return
        backend, context = keras.backend.backend(), _context()
        rule = "`microbatch` must be None"
        if backend != "tensorflow":
            raise ValueError(
                f"{rule} but on TensorFlow. Received: microbatch={value}, backend={backend!r}"
            )
        if self.share_out is None and context is not None:
            raise ValueError(
                f"{rule} under a strategy that Keras shares batches out by. "
                f"Received: microbatch={value}"
            )
        for layer in all_layers(self):
            draws = hasattr(layer, "seed_generator") and not isinstance(layer, BatchDropout)
            if draws or isinstance(layer, keras.layers.BatchNormalization):
                what = "numbers are drawn for each call" if draws else "batches are normalised"
                raise ValueError(
                    f"{rule} where {what}, which must be for all of their images. "
                    f"Received: microbatch={value}, with the layer {layer.name!r}"
                )

    def train_step(self, *arguments):
        if self.share_out is None and self.microbatch is None:
            return super().train_step(*arguments)
        (data,) = arguments
        if not self.built:
            self.build(keras.utils.unpack_x_y_sample_weight(data)[0].shape)
        self._check_microbatch(self.microbatch)
        moved = []
        with _synchronized(self):
            means, same = self.over_replicas(
                lambda data, share: self._gradients_of(data, share, moved), data
            )
        self.optimizer.apply(means["gradients"], self.trainable_variables)
        for variable, value in zip(moved, same["states"]):
            variable.assign(value)
        images = ops.shape(tree.flatten(data)[0])[0]
        for variable, mean in zip(self.metrics_variables, means["metrics"]):
            variable.assign_add(ops.cast(images, variable.dtype) * mean)
        return self.get_metrics_result()

    def whole_loss(self, loss):
        """Undo Keras' division of a mean loss by the number of replicas."""
        context = None if self.share_out is None else _context()
        return loss if context is None else context.num_replicas_in_sync * loss

    def _gradients_of(self, data, share, moved):
        """Compute `_gradients`, in micro-batches if `microbatch` is set."""
        if self.microbatch is None:
            return self._gradients(data, share, moved)
        found = mean_of_microbatches(
            lambda rows, part: self._gradients(rows, part * ops.cast(share, part.dtype), moved),
            data,
            self.microbatch,
        )
        for variable in moved:
            # Random states advance once per batch; float states would change once per part.
            if keras.backend.is_float_dtype(variable.dtype):
                raise ValueError(
                    "`microbatch` must be None where a layer changes weights of its own. "
                    f"Received: microbatch={self.microbatch}, with {variable.path}"
                )
        return found

    def _gradients(self, data, share, moved):
        """Return means of gradients and metric sums, and the new states of the model."""
        import tensorflow as tf

        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        images = ops.shape(tree.flatten(x)[0])[0]
        metrics = [(variable, ops.zeros_like(variable)) for variable in self.metrics_variables]
        # Assign nothing inside: each device would repeat it. The scope includes the weights for
        # weight regularizers.
        with tf.GradientTape() as tape:
            weights = [(v, tf.convert_to_tensor(v.value)) for v in self.trainable_variables]
            with keras.StatelessScope([*metrics, *weights]) as scope:
                outputs = self(x, training=True)
                loss = self.compute_loss(x, y, outputs, weight, training=True)
                tracker = next(metric for metric in self.metrics if metric.name == "loss")
                tracker.update_state(loss, sample_weight=images)
                self.compute_metrics(x, y, outputs, weight)
            # Scale the loss, not the gradient: batch normalization mixes gradients of devices.
            weighted = self.optimizer.scale_loss(ops.cast(share, loss.dtype) * loss)
        gradients = tape.gradient(weighted, self.trainable_weights)
        for gradient, variable in zip(gradients, self.trainable_weights):
            if gradient is None:
                raise ValueError(f"The loss must depend on all weights. Received: {variable.path}")
            gradient.set_shape(variable.shape)
        sums = [scope.get_current_value(variable) for variable, _ in metrics]
        states = [v for v in self.non_trainable_variables if scope.get_current_value(v) is not None]
        states = [v for v in states if all(v is not metric for metric, _ in metrics)]
        moved[:] = states
        means = {
            "gradients": [gradient / ops.cast(share, gradient.dtype) for gradient in gradients],
            "metrics": [total / ops.cast(images, total.dtype) for total in sums],
        }
        return means, {"states": [scope.get_current_value(variable) for variable in states]}


@contextlib.contextmanager
def _synchronized(model):
    """Context manager: synchronize batch normalization over devices."""
    kind = keras.layers.BatchNormalization
    layers = [layer for layer in all_layers(model) if isinstance(layer, kind)]
    before = [layer.synchronized for layer in layers]
    for layer in layers:
        layer.synchronized = True
    try:
        yield
    finally:
        for layer, value in zip(layers, before):
            layer.synchronized = value


def mean_of_microbatches(function, data, microbatch):
    """Average the first dict that `function(rows, share)` returns over microbatches of `data`."""
    # `function` returns a dict of means over its rows and a dict of values that all rows share.
    import tensorflow as tf

    data = tree.map_structure(lambda x: None if x is None else tf.convert_to_tensor(x), data)
    images = ops.shape(tree.flatten(data)[0])[0]
    first, total = current_rows(images)

    def part(start):
        end = ops.minimum(start + microbatch, images)
        rows = tree.map_structure(lambda x: None if x is None else x[start:end], data)
        share = ops.cast(end - start, "float32") / ops.cast(images, "float32")
        with rows_at_hand(first + start, total):
            means, same = function(rows, share)
        return tree.map_structure(lambda mean: ops.cast(share, mean.dtype) * mean, means), same

    # Trace once, for the shapes of the results and for the loop.
    part = tf.function(part, autograph=False).get_concrete_function(tf.TensorSpec((), "int32"))
    zeros = tree.map_structure(lambda x: tf.zeros(x.shape, x.dtype), part.structured_outputs)

    def body(start, sums, _):
        added, same = part(start)
        return start + microbatch, tree.map_structure(ops.add, sums, added), same

    # In parallel, the iterations would need the memory of the whole batch.
    _, sums, same = tf.while_loop(
        lambda start, *_: start < images,
        body,
        (tf.constant(0, "int32"), *zeros),
        parallel_iterations=1,
    )
    return sums, same
