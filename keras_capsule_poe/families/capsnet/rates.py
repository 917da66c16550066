"""How the learning rate of a classifier falls."""

import math

import keras
from keras import ops

from keras_capsule_poe.functions.checks import one_of


@keras.saving.register_keras_serializable("keras_capsule_poe")
class FallingRate(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that falls step by step, and never below a floor.

    Args:
        first: float, at step zero.
        decay: float, what it is multiplied with in `steps` steps; or None: it follows half a
            cosine, which reaches the floor after these steps.
        steps: int.
        least: float, the floor.

    Raises:
        ValueError: If a number is not in range.

    Examples:

    >>> rate = FallingRate(1e-3, decay=0.96, steps=2000, least=1e-6)
    >>> [round(float(rate(step)), 7) for step in (0, 2000, 10**6)]
    [0.001, 0.00096, 1e-06]
    """

    def __init__(self, first, decay, steps, least=0.0):
        for name, value, is_right in (
            ("decay", decay, decay is None or 0 < decay <= 1),
            ("decay_steps", steps, steps >= 1),
            ("least_rate", least, 0 <= least <= first),
        ):
            if not is_right:
                raise ValueError(f"`{name}` is out of range. Received: {name}={value!r}")
        self.first, self.decay, self.steps, self.least = first, decay, steps, least

    def __call__(self, step):
        done = ops.cast(step, "float32") / self.steps
        if self.decay is None:
            share = (1 + ops.cos(math.pi * ops.minimum(done, 1.0))) / 2
            return self.least + (self.first - self.least) * share
        return ops.maximum(self.first * ops.power(self.decay, done), self.least)

    def get_config(self):
        return dict(first=self.first, decay=self.decay, steps=self.steps, least=self.least)


def falling(net, epochs, steps):
    """The `FallingRate` of a section's settings, for so many epochs of so many steps."""
    if one_of("fall", net.fall, ("exponential", "cosine")) == "cosine":
        return FallingRate(net.learning_rate, None, epochs * steps, net.least_rate)
    by = steps if net.decay_steps is None else net.decay_steps
    return FallingRate(net.learning_rate, net.decay, by, net.least_rate)
