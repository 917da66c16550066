"""Training steps that assign to variables; for Jax, as pure functions of what these are."""

import contextlib
import itertools

import keras

# Torch's own autodiff watches every variable that a step assigns to.
BACKENDS = ("tensorflow", "jax")


class FittedModel:
    """A Keras model that is fitted on the backends `BACKENDS`.

    On others it computes, is saved and loaded.
    """

    def fit(self, x=None, *args, **kwargs):
        """As `keras.Model.fit`; arrays build a model that is not built yet."""
        self._begin(x)
        return super().fit(x, *args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        """As `keras.Model.evaluate`; arrays build a model that is not built yet."""
        self._begin(x)
        return super().evaluate(x, *args, **kwargs)

    def _begin(self, x):
        self._need_backend()
        if not self.built and hasattr(x, "shape"):
            strategy = getattr(self, "distribute_strategy", None)
            with strategy.scope() if strategy else contextlib.nullcontext():
                self.build((None, *x.shape[1:]))

    def _need_backend(self):
        backend = keras.backend.backend()
        if backend not in BACKENDS:
            raise RuntimeError(
                f"{type(self).__name__} is trained on the TensorFlow and Jax backends only: set "
                f"KERAS_BACKEND=tensorflow or jax. Received: backend={backend!r}"
            )


class PureSteps(FittedModel):
    """A `FittedModel` whose steps find what to do themselves and assign it to its variables.

    Subclasses have `training_step(data)` and `testing_step(data)`, which return logs. TensorFlow
    calls them as they are. Jax, where a compiled function can move nothing, calls each as one of
    the values of all variables, to logs and the values that the step leaves.
    """

    def train_step(self, *arguments):
        """As Keras' trainer of the backend calls it: (data), or (state, data)."""
        return self._at_values(self.training_step, arguments, with_optimizer=True)

    def test_step(self, *arguments):
        """See `train_step`."""
        return self._at_values(self.testing_step, arguments, with_optimizer=False)

    def _at_values(self, step, arguments, with_optimizer):
        self._need_backend()
        if not self.built:
            raise ValueError(
                f"{type(self).__name__} is not built: call `build((None, ...))` with the shape of "
                "its inputs, or give arrays."
            )
        *state, data = arguments
        if not state:
            return step(data)
        groups = [self.trainable_variables, self.non_trainable_variables]
        groups += [self.optimizer.variables] if with_optimizer else []
        groups += [self.metrics_variables]
        chain = itertools.chain.from_iterable
        known = list(zip(chain(groups), chain(state[0]), strict=True))
        with keras.StatelessScope(known) as scope:
            logs = step(data)
        return logs, tuple([scope.get_current_value(v) for v in group] for group in groups)
