"""Training steps that assign variables, also as pure functions for JAX."""

import contextlib
import itertools

import keras

# PyTorch is not supported: its autograd tracks the variables that a step assigns.
BACKENDS = ("tensorflow", "jax")


class FittedModel:
    """Mixin for a `keras.Model` that can be fitted on the backends `BACKENDS` only."""

    def fit(self, x=None, *args, **kwargs):
        """Train as `keras.Model.fit`; arrays also build an unbuilt model."""
        self._begin(x)
        return super().fit(x, *args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        """Evaluate as `keras.Model.evaluate`; arrays also build an unbuilt model."""
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
    """A `FittedModel` whose `training_step` and `testing_step` assign variables themselves."""

    def train_step(self, *arguments):
        """Run `training_step` on (data), or on (state, data) under JAX."""
        return self._at_values(self.training_step, arguments, with_optimizer=True)

    def test_step(self, *arguments):
        """Run `testing_step` on (data), or on (state, data) under JAX."""
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
        # JAX cannot assign inside a compiled function, so the step returns the new values.
        groups = [self.trainable_variables, self.non_trainable_variables]
        groups += [self.optimizer.variables] if with_optimizer else []
        groups += [self.metrics_variables]
        chain = itertools.chain.from_iterable
        known = list(zip(chain(groups), chain(state[0]), strict=True))
        with keras.StatelessScope(known) as scope:
            logs = step(data)
        return logs, tuple([scope.get_current_value(v) for v in group] for group in groups)
