"""What happens to losses while a model is trained."""

import math

import keras

from keras_capsule_poe.functions.checks import one_of, share, whole_number


class SpreadMargin(keras.callbacks.Callback):
    """Lets the margin of a `SpreadLoss` grow, step by step, and goes on where a run was stopped.

    Args:
        loss: The `SpreadLoss`, or None: that of the model, of which a `MatrixCapsNet` has its own.
        steps: int, over which the margin grows.
        first, last: float in (0, 1], the margin before the first step and after `steps` of them;
            `last` is not less.
        rise: `"linear"`, as in the paper; or `"official"`, first + (last - first) sigmoid(x),
            x from -4 to 10 over `steps` steps, as in the code published with it.

    Raises:
        ValueError: If an argument is not as above; in training, if there is no `SpreadLoss`.

    Examples:

    >>> margin = SpreadMargin(steps=100)
    >>> [round(margin.at(step), 2) for step in (0, 50, 100, 500)]
    [0.2, 0.55, 0.9, 0.9]

    Reference:

    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 3.1
    """

    def __init__(self, steps, loss=None, first=0.2, last=0.9, rise="linear"):
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
        """The margin after so many steps."""
        done = min(step / self.steps, 1.0)
        if self.rise == "official":
            done = 1 / (1 + math.exp(4 - 14 * done))
        return self.first + (self.last - self.first) * done

    def on_train_begin(self, logs=None):
        if keras.backend.backend() == "jax":
            _carry(self.model, self._loss())

    def on_train_batch_begin(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            # Within an epoch its trainer keeps all state to itself.
            self.model.jax_state_sync()
        self._loss().set_margin(self.at(int(self.model.optimizer.iterations)))

    def _loss(self):
        if self.loss is not None:
            return self.loss
        # A `MatrixCapsNet` has its own.
        loss = getattr(self.model, "spread", None) or self.model.loss
        if not hasattr(loss, "set_margin"):
            raise ValueError(
                "`loss` must be a SpreadLoss, or the model must have one. Received: loss=None, "
                f"a model with the loss {loss!r}"
            )
        return loss


class _Margin(keras.metrics.Metric):
    """The margin as one of a model's metrics, which are state that a compiled step is given."""

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
    """Makes the margin of a loss part of a model's state: else Jax compiles it in as it stands."""
    carried = getattr(model, "spread_margin", None)
    if carried is not None and carried.now is loss.margin_variable:
        return
    if carried is not None:
        # Of another loss, which the model was compiled with before.
        model._tracker.untrack(carried)
    model._tracker.unlock()
    model.spread_margin = _Margin(loss.margin_variable)
    model._tracker.lock()
