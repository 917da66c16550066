"""Models that are fitted on checked inputs and exported, and the checks."""

import contextlib
import itertools
import re
import types
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.core.arguments import number_given
from keras_capsule_poe.data.pixels import check_memory
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.keras_private import Exportable, validates_in_fit

# Rounding of byte / 255 may give slightly more than one.
ROUNDING = 1e-3
PIXELS, FINITE = (0.0, 1.0), (-np.inf, np.inf)
# PyTorch is not supported: its autograd tracks the variables that a step assigns.
BACKENDS = ("tensorflow", "jax")
# The error of a check of labels, in the message of TensorFlow.
_LABELS = re.compile(r"(?:DataError: |\[)((?:rows of )?`y` [^\]\n]+)")
_FAILED = re.compile(r"(`x` must have finite values.*?Received:)\] \[(\S+)\] \[(\S+)\]")


def is_array(x):
    """Return whether x is an array or a tensor, not a dataset."""
    return hasattr(x, "shape") and hasattr(x, "dtype")


def has_rank(x):
    """Return whether x is an array, tensor or spec whose number of axes is known."""
    return is_array(x) and getattr(x.shape, "rank", 0) is not None


def is_known(x):
    """Return whether the values of x can be read now: not those of a graph."""
    return isinstance(x, np.ndarray) or (is_array(x) and hasattr(x, "numpy"))


def rows_given(n, size, what="images"):
    """Return the number of rows of a public call; raise `BadUse` if the memory holds fewer.

    A row has `size` numbers. Tensors stay as they are, see `number_given`.
    """
    n = number_given("n", n)
    if isinstance(n, int):
        # The numbers, and a copy of some of them.
        check_memory(f"`n` must be smaller. Received: n={n}. So many {what}", 8 * n * size)
    return n


def checked_pixels(images, name="images"):
    """Return images as pixels in [0, 1]; values that can be read now are checked.

    Tensors of uint8 are bytes. What is no array or tensor is returned as it is.
    """
    if is_known(images):
        check_values(images, name, bytes_too=True)
    if not is_array(images) or keras.backend.standardize_dtype(images.dtype) != "uint8":
        return images
    return ops.cast(images, "float32") / 255


def _rule(name, bounds):
    where = "" if bounds == FINITE else f" in [{bounds[0]:g}, {bounds[1]:g}]"
    return f"`{name}` must have finite values{where}. Received:"


def check_values(x, name="x", bounds=PIXELS, bytes_too=False):
    """Raise `BadUse` unless all values of an array are finite and within bounds.

    With `bytes_too`, an array of uint8 holds bytes, from 0 to 255.
    """
    if not is_array(x) or not all(x.shape):
        return
    low, high = _extremes(x)
    if bytes_too and keras.backend.standardize_dtype(x.dtype) == "uint8":
        if high == 1:
            raise BadUse(
                f"`{name}` of dtype uint8 must hold bytes from 0 to 255. Received: values up to 1. "
                "Cast zeros and ones to float32"
            )
        return
    if not _are_inside(low, high, bounds):
        raise BadUse(_message(_rule(name, bounds), low, high, bytes_too))


def _are_inside(low, high, bounds):
    is_inside = low >= bounds[0] - ROUNDING and high <= bounds[1] + ROUNDING
    return is_inside and np.isfinite(low + high)


def _message(rule, low, high, bytes_too):
    if not np.isfinite(low + high):
        return f"{rule} NaN or infinity. Replace or drop such values"
    hint = "Divide bytes by 255" + (", or give them as uint8" if bytes_too else "")
    return f"{rule} values from {low:g} to {high:g}. {hint}"


def _extremes(x):
    """Return the smallest and the largest value of an array, floats; NaN if one is NaN."""
    if hasattr(x, "min"):
        with np.errstate(invalid="ignore"):
            return float(x.min()), float(x.max())
    return tuple(float(ops.cast(found(x), "float32")) for found in (ops.min, ops.max))


def checked_dataset(dataset, bounds=PIXELS, bytes_too=False):
    """Return a `tf.data.Dataset` whose inputs are checked as they are read."""
    import tensorflow as tf

    x = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)[0]
    if not is_array(x) or (bytes_too and x.dtype == tf.uint8):
        return dataset

    def check(x):
        low, high = (tf.cast(found(x), tf.float32) for found in (tf.reduce_min, tf.reduce_max))
        inside = (low >= bounds[0] - ROUNDING) & (high <= bounds[1] + ROUNDING)
        inside &= tf.math.is_finite(low + high) | tf.equal(tf.size(x), 0)
        inside |= tf.equal(tf.size(x), 0)
        message = [_rule("x", bounds), low, high]
        with tf.control_dependencies([tf.debugging.Assert(inside, message)]):
            return tf.identity(x)

    def checked(*element):
        if len(element) == 1 and not isinstance(dataset.element_spec, tuple):
            return check(element[0])
        return (check(element[0]), *element[1:])

    return dataset.map(checked)


def checked_labels(data, check):
    """Return a stream that calls `check` with the labels of each batch as it is read."""
    unpacked = keras.utils.unpack_x_y_sample_weight
    if isinstance(data, types.GeneratorType):
        return (_checked_batch(batch, check) for batch in data)
    if isinstance(data, keras.utils.PyDataset):
        return _CheckedBatches(data, check)
    if not is_tf_dataset(data):
        return data
    labels = unpacked(data.element_spec)[1]
    if labels is None:
        check(None)
    spec = labels[0] if isinstance(labels, tuple) else labels
    kind = getattr(getattr(spec, "dtype", None), "name", None)
    if kind == "string" or type(spec).__name__ != "TensorSpec":
        raise ValueError(
            "`y` must be integers (batch,), or zeros and ones with a column for each class. "
            f"Received: a data set of {'strings' if kind == 'string' else type(spec).__name__}."
        )
    return _checked_stream(data, check)


def _checked_batch(batch, check):
    check(keras.utils.unpack_x_y_sample_weight(batch)[1])
    return batch


class _CheckedBatches(keras.utils.PyDataset):
    """`PyDataset` whose labels are checked batch by batch."""

    def __init__(self, data, check):
        names = ("workers", "use_multiprocessing", "max_queue_size")
        super().__init__(**{name: getattr(data, name) for name in names})
        self.data, self.check = data, check
        self.on_epoch_begin, self.on_epoch_end = data.on_epoch_begin, data.on_epoch_end

    @property
    def num_batches(self):
        return self.data.num_batches

    def __getitem__(self, index):
        return _checked_batch(self.data[index], self.check)


def _checked_stream(data, check):
    """Return a `tf.data.Dataset` of (x, y, ...) whose labels are checked as they are read."""
    import tensorflow as tf

    def complaint(labels):
        # An exception would print its traceback on standard error.
        try:
            check(labels)
        except ValueError as error:
            return str(error)
        return ""

    def checked(x, y, *weights):
        labels = y[0] if isinstance(y, tuple) else y
        found = tf.numpy_function(complaint, [labels], tf.string)
        with tf.control_dependencies([tf.debugging.Assert(found == "", [found])]):
            labels = tf.identity(labels)
        return (x, (labels, *y[1:]) if isinstance(y, tuple) else labels, *weights)

    return data.map(checked)


@contextlib.contextmanager
def plain_errors(bytes_too=False):
    """Context that turns the error of a `checked_dataset` into a `BadUse` of one line."""
    try:
        yield
    except Exception as error:
        if found := _LABELS.search(str(error)):
            raise BadUse(found[1].strip()) from None
        found = _FAILED.search(str(error))
        if found is None:
            raise
        rule, low, high = found.groups()
        raise BadUse(_message(rule, float(low), float(high), bytes_too)) from None


def first_inputs(x):
    """Return `(x, first)`: the data, and the inputs of a first batch or their spec, or None.

    A generator is read once, so it is returned with its first batch put back.
    """
    if x is None or is_array(x):
        return x, x
    unpacked = keras.utils.unpack_x_y_sample_weight
    if isinstance(x, keras.utils.PyDataset):
        return x, unpacked(x[0])[0]
    if isinstance(x, types.GeneratorType):
        batch = next(x, None)
        if batch is None:
            return x, None
        return (each for each in itertools.chain([batch], x)), unpacked(batch)[0]
    spec = getattr(x, "element_spec", None)
    return x, None if spec is None else unpacked(spec)[0]


def is_tf_dataset(x):
    """Return whether x is a `tf.data.Dataset` that can be mapped."""
    return hasattr(x, "element_spec") and hasattr(x, "map")


def checked(x, bounds=PIXELS, bytes_too=False):
    """Return `(x, first)` as `first_inputs`, with the values checked now or as they are read."""
    x, first = first_inputs(x)
    if is_tf_dataset(x):
        x = checked_dataset(x, bounds, bytes_too)
    elif first is not None:
        check_values(first, "x", bounds, bytes_too)
    return x, first


def in_a_row(weights):
    """Return sample weights (N, 1) as (N,): Keras traces a step for weights of one rank."""
    if is_array(weights) and tuple(weights.shape[1:]) == (1,):
        return ops.convert_to_numpy(weights).reshape(-1) if is_known(weights) else weights[:, 0]
    return weights


class FittedModel(Exportable):
    """Mixin for a `keras.Model` that can be fitted on the backends `BACKENDS` only."""

    @property
    def bounds(self):
        """Lower and upper bound of the values that the model is fitted on."""
        return FINITE

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
        x, given = self._begin(x, kwargs), kwargs.get("validation_data")
        if isinstance(given, (tuple, list)):
            kwargs["validation_data"] = (self._begin(given[0]), *given[1:])
        elif given is not None:
            kwargs["validation_data"] = self._begin(given)
        with plain_errors():
            history = super().fit(x, *args, **kwargs)  # type: ignore[misc]
        self._fitted(history)
        return history

    def evaluate(self, x=None, *args, **kwargs):
        """Evaluate as `keras.Model.evaluate`; the data also build an unbuilt model."""
        # `fit` has checked its validation data once.
        x = x if validates_in_fit(kwargs) else self._begin(x, kwargs)
        with plain_errors():
            return super().evaluate(x, *args, **kwargs)

    def _fitted(self, history):
        """Warn if the `History` of a training shows that it failed."""

    def _begin(self, x, options=None):
        """Check the data, build the model if needed, and return the data as `fit` takes them."""
        self._need_backend()
        x, first = checked(x, self.bounds)
        if not self.built and has_rank(first):
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
