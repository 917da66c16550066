"""Optimizers of the stages, with their learning-rate schedules."""

import keras

from keras_capsule_poe.training.optimizers import ConvolutionMuon


def for_autoencoder(decay_steps, learning_rate=2e-3, final_rate=0.02, weight_decay=2.0):
    """Return Muon with a short warm-up and a cosine decay to `final_rate * learning_rate`."""
    _check_rates(learning_rate, final_rate)
    if not weight_decay >= 0:
        raise ValueError(f"`weight_decay` must be zero or more. Received: {weight_decay!r}")
    warm_up = min(50, max(1, decay_steps // 10))
    rate = keras.optimizers.schedules.CosineDecay(
        learning_rate / 10,
        max(1, decay_steps - warm_up),
        alpha=final_rate,
        warmup_target=learning_rate,
        warmup_steps=warm_up,
    )
    # Weight decay keeps the features in few directions.
    return ConvolutionMuon(rate, weight_decay=weight_decay or None)


def for_capsules(decay_steps, learning_rate=0.2, momentum=0.9, final_rate=0.1):
    """Return SGD with momentum and a cosine decay to `final_rate * learning_rate`."""
    _check_rates(learning_rate, final_rate)
    if not 0 <= momentum < 1:
        raise ValueError(f"`momentum` must lie in [0, 1). Received: momentum={momentum!r}")
    rate = keras.optimizers.schedules.CosineDecay(learning_rate, decay_steps, alpha=final_rate)
    return keras.optimizers.SGD(rate, momentum=momentum)


def _check_rates(learning_rate, final_rate):
    if not learning_rate > 0:
        raise ValueError(
            f"`learning_rate` must be above zero. Received: learning_rate={learning_rate!r}"
        )
    if not 0 <= final_rate <= 1:
        raise ValueError(f"`final_rate` must lie in [0, 1]. Received: final_rate={final_rate!r}")
