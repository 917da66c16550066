"""Training steps that share their batch out: over several devices, and in microbatches."""

import contextlib
import functools

import keras
from keras import ops, tree

from keras_capsule_poe.core.numerics import whole_number
from keras_capsule_poe.core.sharding import current_rows, rows_at_hand
from keras_capsule_poe.distributed.distribution import WholeBatches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.keras_private import all_layers
from keras_capsule_poe.layers.capsules import BatchDropout

# Reductions whose value for a batch is the weighted mean of those for its parts.
_MEANS = ("sum_over_batch_size", "mean")
SEVERAL = "several replicas"


class SharedOut:
    """Mixin for models whose training step is one update with means over the whole batch.

    Under a strategy of Keras, too, each step gets its whole batch, so that the update and the
    metrics are those of one device. Keras alone would sum means, and clip parts of gradients.
    """

    # The training engine sets it to share_out(of_part, data) to run of_part on several devices.
    share_out = None

    @property
    def distribute_strategy(self):
        """Strategy of Keras under which the model was made, or a stand-in for several replicas."""
        strategy = super().distribute_strategy
        if strategy.num_replicas_in_sync == 1:
            return strategy
        return WholeBatches(strategy, self)

    def make_train_function(self, force=False):
        """Build the optimizer before tracing, to avoid a second trace."""
        strategy = getattr(self, "distribute_strategy", None)
        is_shared = isinstance(strategy, WholeBatches)
        if is_shared:
            strategy.check_variables(self.trainable_variables)
        if self.built and self.optimizer is not None and not self.optimizer.built:
            with strategy.scope() if is_shared else contextlib.nullcontext():
                self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    @property
    def sharing(self):
        """Function `share_out(of_part, data)` of several devices, or None for one device."""
        if self.share_out is not None:
            return self.share_out
        strategy = getattr(self, "distribute_strategy", None)
        if not isinstance(strategy, WholeBatches):
            return None
        if _context() is not None:
            raise BadUse(
                f"{type(self).__name__} shares its batches out itself: train it by `fit` or "
                "`train_on_batch`. Received: a call by `strategy.run`"
            )
        return strategy.share_out

    def over_replicas(self, function):
        """Return a function of data that gives batch means, computed once per device.

        Args:
            function: Function of (rows of the data, their share of the batch, one by default). It
                returns a dict of means over its rows, and a dict of values that are the same for
                all rows. It must not assign variables.

        Returns:
            Function of a tensor (B, ...), or a tuple of them. It returns the dict of means over the
            whole batch and the dict of common values. On one device it is `function` itself.
        """
        if self.sharing is None:
            return function

        def of_part(part, start, total, share):
            with rows_at_hand(start, total):
                return _all_reduced(*function(part, share), share)

        return functools.partial(self.sharing, of_part)


def _all_reduced(means, same, share):
    """Return the means over all replicas and the values of the first replica."""
    context = _context()
    if context is None:
        return means, same
    is_first = ops.equal(context.replica_id_in_sync_group, 0)
    parts = tree.map_structure(lambda mean: ops.cast(share, mean.dtype) * mean, means)
    firsts = tree.map_structure(lambda x: ops.where(is_first, x, ops.zeros_like(x)), same)
    return _summed(context, parts), _summed(context, firsts)


def _summed(context, values):
    """Return sums over all replicas of nested tensors."""
    flat = tree.flatten(values)
    # `all_reduce` takes tensors of one type, and at least one.
    for kind in dict.fromkeys(x.dtype for x in flat):
        places = [k for k, x in enumerate(flat) if x.dtype == kind]
        for k, total in zip(places, context.all_reduce("SUM", [flat[k] for k in places])):
            flat[k] = total
    return tree.pack_sequence_as(values, flat)


def _context():
    """Return the replica context if there are several replicas, else None."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return None if context is None or context.num_replicas_in_sync == 1 else context


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
        backend = keras.backend.backend()
        if backend != "tensorflow":
            raise ValueError(
                "`microbatch` must be None but on TensorFlow. "
                f"Received: microbatch={value}, backend={backend!r}"
            )
        self._check_parts(f"microbatch={value}")
        for layer in _normalizations(self):
            raise ValueError(
                "`microbatch` must be None where batches are normalised, which must be for all of "
                f"their images. Received: microbatch={value}, with the layer {layer.name!r}"
            )

    def _check_parts(self, received):
        """Raise `ValueError` if parts of a batch do not make the step of the whole batch."""
        rule = f"The step of {type(self).__name__} must be that of its whole batch"
        for layer in all_layers(self):
            if hasattr(layer, "seed_generator") and not isinstance(layer, BatchDropout):
                raise ValueError(
                    f"{rule}, but numbers are drawn for each call. "
                    f"Received: {received}, with the layer {layer.name!r}. Use `BatchDropout`"
                )
        given = [*vars(self).values(), *tree.flatten(getattr(self, "loss", None))]
        for loss in given:
            reduction = getattr(loss, "reduction", "mean")
            if isinstance(loss, keras.losses.Loss) and reduction not in _MEANS:
                raise ValueError(
                    f"{rule}, but a loss is no mean over images. "
                    f"Received: {received}, with reduction={reduction!r} of the loss {loss.name!r}"
                )

    def train_step(self, *arguments):
        if self.sharing is None and self.microbatch is None:
            return super().train_step(*arguments)
        (data,) = arguments
        if not self.built:
            self.build(keras.utils.unpack_x_y_sample_weight(data)[0].shape)
        if self.sharing is not None:
            self._check_parts(SEVERAL)
        self._check_microbatch(self.microbatch)
        moved = []
        with _synchronized(self):
            gradients = functools.partial(self._gradients_of, moved)
            means, same = self.over_replicas(gradients)(data)
        self._check_moved(moved)
        self.optimizer.apply(means["gradients"], self.trainable_variables)
        for variable, value in zip(moved, same["states"]):
            variable.assign(value)
        images = ops.shape(tree.flatten(data)[0])[0]
        for variable, mean in zip(self.metrics_variables, means["metrics"]):
            variable.assign_add(ops.cast(images, variable.dtype) * mean)
        return self.get_metrics_result()

    def whole_loss(self, loss):
        """Undo Keras' division of a mean loss by the number of replicas."""
        context = _context()
        return loss if context is None else context.num_replicas_in_sync * loss

    def _check_moved(self, moved):
        """Raise `ValueError` if parts of a batch changed weights differently."""
        known = {id(v) for layer in _normalizations(self) for v in layer.non_trainable_variables}
        for variable in moved:
            # Random states advance once per batch. Moments of a batch are those of all devices.
            if keras.backend.is_float_dtype(variable.dtype) and id(variable) not in known:
                received = f"microbatch={self.microbatch}" if self.microbatch else SEVERAL
                raise ValueError(
                    f"The step of {type(self).__name__} must be that of its whole batch, but a "
                    f"layer changes weights of its own. Received: {received}, with {variable.path}"
                )

    def _gradients_of(self, moved, data, share=1.0):
        """Compute `_gradients`, in micro-batches if `microbatch` is set."""
        if self.microbatch is None:
            return self._gradients(data, share, moved)
        return mean_of_microbatches(
            lambda rows, part: self._gradients(rows, part * ops.cast(share, part.dtype), moved),
            data,
            self.microbatch,
        )

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


def _normalizations(model):
    kind = keras.layers.BatchNormalization
    return [layer for layer in all_layers(model) if isinstance(layer, kind)]


@contextlib.contextmanager
def _synchronized(model):
    """Context manager: synchronize batch normalization over devices."""
    layers = _normalizations(model)
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
