"""Training callbacks."""

import math
from typing import Any

import keras

from keras_capsule_poe.core.numerics import one_of, share, whole_number
from keras_capsule_poe.keras_private import unlocked


class SpreadMargin(keras.callbacks.Callback):
    """Schedule that increases the margin of a `SpreadLoss` during training.

    The margin depends on the optimizer's step count, so that resumed runs continue the schedule.

    Args:
        steps: int, number of training steps until the margin reaches `last`.
        loss: `SpreadLoss`. None uses the loss of the model.
        first, last: float in `(0, 1]`, initial and final margin. `last` must not be smaller.
        rise: `"linear"`, as in the paper; or `"official"`, a sigmoid of x from -4 to 10, as in the
            published code.

    Raises:
        ValueError: If an argument is invalid, or in training if there is no `SpreadLoss`.

    Example:
        >>> margin = SpreadMargin(steps=100)
        >>> [round(margin.at(step), 2) for step in (0, 50, 100, 500)]
        [0.2, 0.55, 0.9, 0.9]

    Reference:
        [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 3.1.
    """

    def __init__(
        self,
        steps: int,
        loss: Any = None,
        first: float = 0.2,
        last: float = 0.9,
        rise: str = "linear",
    ) -> None:
        super().__init__()
        self.steps = whole_number("steps", steps)
        self.first, self.last = share("first", first), share("last", last)
        if self.last < self.first:
            raise ValueError(
                f"The margin must not fall from `first` to `last`. Received: {first=}, {last=}"
            )
        self.rise = one_of("rise", rise, ("linear", "official"))
        self.loss = loss

    def at(self, step):
        """Return the margin after `step` training steps."""
        done = min(step / self.steps, 1.0)
        if self.rise == "official":
            done = 1 / (1 + math.exp(4 - 14 * done))
        return self.first + (self.last - self.first) * done

    def on_train_begin(self, logs=None):
        if keras.backend.backend() == "jax":
            _carry(self.model, self._loss())

    def on_train_batch_begin(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            # Within an epoch the JAX trainer does not update the variables.
            self.model.jax_state_sync()
        # Under a strategy Keras makes no int of a variable.
        step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        self._loss().set_margin(self.at(step))

    def _loss(self):
        if self.loss is not None:
            return self.loss
        # `MatrixCapsNet` has its own.
        loss = getattr(self.model, "spread", None) or self.model.loss
        if not hasattr(loss, "set_margin"):
            raise ValueError(
                "`loss` must be a SpreadLoss, or the model must have one. Received: loss=None, "
                f"a model with the loss {loss!r}"
            )
        return loss


class _Margin(keras.metrics.Metric):
    """Metric that carries the margin as state of a compiled training step."""

    def __init__(self, variable):
        super().__init__(name="margin")
        self.now = variable

    def update_state(self, *args, **kwargs):
        pass

    def reset_state(self):
        pass

    def result(self):
        return self.now.value


def _carry(model, loss):
    """Add the margin to the state of a model. Otherwise JAX compiles it in as a constant."""
    carried = getattr(model, "spread_margin", None)
    if carried is not None and carried.now is loss.margin_variable:
        return
    with unlocked(model) as forget:
        if carried is not None:
            # The model was compiled with another loss before.
            forget(carried)
        model.spread_margin = _Margin(loss.margin_variable)
