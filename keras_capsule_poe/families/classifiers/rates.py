"""Learning-rate schedules of classifiers."""

import keras
from keras import ops

from keras_capsule_poe.functions.checks import one_of


@keras.saving.register_keras_serializable("keras_capsule_poe")
class FlooredDecay(keras.optimizers.schedules.ExponentialDecay):
    """Keras' `ExponentialDecay` with a lower bound `least`."""

    def __init__(self, initial_learning_rate, decay_steps, decay_rate, least=0.0, **kwargs):
        super().__init__(initial_learning_rate, decay_steps, decay_rate, **kwargs)
        self.least = least

    def __call__(self, step):
        return ops.maximum(super().__call__(step), self.least)

    def get_config(self):
        return {**super().get_config(), "least": self.least}


def falling(net, epochs, steps):
    """Return a section's learning-rate schedule for `epochs` epochs of `steps` steps."""
    first, least = net.first_rate, net.least_rate
    by = steps if net.decay_steps is None else net.decay_steps
    for name, value, is_right in (
        ("learning_rate", first, first > 0),
        ("decay", net.decay, 0 < net.decay <= 1),
        ("decay_steps", by, by >= 1),
    ):
        if not is_right:
            raise ValueError(f"`{name}` is out of range. Received: {name}={value!r}")
    if not 0 <= least <= first:
        raise ValueError(
            "`least_rate` must lie between zero and the learning rate. "
            f"Received: least_rate={least!r}, learning_rate={first!r}"
        )
    if one_of("fall", net.fall, ("exponential", "cosine")) == "cosine":
        return keras.optimizers.schedules.CosineDecay(first, epochs * steps, alpha=least / first)
    return FlooredDecay(first, by, net.decay, least)
