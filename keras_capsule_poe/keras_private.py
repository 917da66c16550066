"""Private names of Keras, behind public ones: no other file of the package uses any.

`tests/test_keras_private.py` says what each of them relies on.
"""

import contextlib

import keras
from keras.src.trainers.compile_utils import MetricsList


class LargerIsBetter(keras.metrics.Mean, MetricsList):
    """Mean that callbacks such as `EarlyStopping` know to be better if larger.

    They look up the direction of a metric in lists of metrics alone: it is one of itself.
    """

    _direction = "up"
    variables = keras.metrics.Metric.variables

    def __init__(self, name="accuracy", dtype=None):
        keras.metrics.Metric.__init__(self, name=name, dtype=dtype)
        self.total = self.add_variable((), "zeros", dtype=self.dtype, name="total")
        self.count = self.add_variable((), "zeros", dtype=self.dtype, name="count")

    @property
    def metrics(self):
        """The metric itself, as the only one of a list."""
        return [self]

    def get_config(self):
        return keras.metrics.Metric.get_config(self)

    @classmethod
    def from_config(cls, config):
        return cls(**config)


class Exportable:
    """Mixin for a `keras.Model` that `export` and converters take as soon as it is built.

    Keras reads the input shape from the arguments of `build`, which may be missing here, and takes
    a model that was only trained for one that was never called. A subclass whose `build` needs no
    shape defines `batch_shape`.
    """

    batch_shape = None

    @property
    def _build_shapes_dict(self):
        given = self.__dict__.get("_given_shapes")
        is_known = given is not None and any(given.values())
        if is_known or self.batch_shape is None or not self.built:
            return given
        return {"input_shape": self.batch_shape}

    @_build_shapes_dict.setter
    def _build_shapes_dict(self, value):
        # Not an attribute of Keras, which would wrap the dict. It may be empty, for a `build`
        # without a shape, and files of models hold it.
        self.__dict__["_given_shapes"] = None if value is None else dict(value)

    @property
    def _called(self):
        return self.__dict__.get("_was_called", False) or self.built

    @_called.setter
    def _called(self, value):
        self.__dict__["_was_called"] = value


def all_layers(model):
    """Return an iterator over a model and all layers in it, at any depth."""
    return model._flatten_layers()


def compiled_metrics(model):
    """Return the metric that holds those given to `compile`, or None if there are none."""
    return next((each for each in model.metrics if each.name == "compile_metrics"), None)


def validates_in_fit(options):
    """Return whether `fit` gave these keyword arguments to `evaluate`, for its validation data."""
    return bool(options.get("_use_cached_eval_dataset"))


def variable_index(optimizer, variable):
    """Return the place of a variable among those that the optimizer was built with."""
    return optimizer._get_variable_index(variable)


def own_variables(model):
    """Return the variables of a model that are in none of its layers."""
    return [*model._trainable_variables, *model._non_trainable_variables]


@contextlib.contextmanager
def unlocked(model):
    """Context in which a built model takes other parts and state, for good if it unbuilds it.

    It gives a function that makes the model forget a former part or variable.
    """
    was_locked = model._tracker.locked
    model._tracker.unlock()
    try:
        yield model._tracker.untrack
    finally:
        if was_locked and model.built:
            model._lock_state()
