"""Optimizers that keep an average of the weights (Polyak & Juditsky, 1992)."""

import contextlib

import keras
from keras import ops

from keras_capsule_poe.training.optimizers import ConvolutionMuon


# Keras copies the average into the weights whenever `fit` ends. A resumed epoch is a `fit` call
# of its own, so the copy would change the training.
class KeepsAverage:
    """Mixin for optimizers with `use_ema`: `fit` does not copy the average into the weights."""

    def finalize_variable_values(self, var_list):
        """Leave the weights as they are."""

    def give_average(self, variables):
        """Assign the averages to all trainable variables."""
        super().finalize_variable_values(variables)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class AveragedAdam(KeepsAverage, keras.optimizers.Adam):
    """Adam with `KeepsAverage`."""


@keras.saving.register_keras_serializable("keras_capsule_poe")
class AveragedMuon(KeepsAverage, ConvolutionMuon):
    """`ConvolutionMuon` with `KeepsAverage`."""


@contextlib.contextmanager
def averaged(model):
    """Context in which a model has the average of its weights, if its optimizer keeps one."""
    if not model.optimizer.use_ema:
        yield
        return
    if not isinstance(model.optimizer, KeepsAverage):
        raise ValueError(
            "An optimizer with `use_ema` must be a `KeepsAverage`, as `AveragedAdam` is. "
            f"Received: {type(model.optimizer).__name__}"
        )
    # Batch-normalization statistics and the optimizer state stay those of the trained weights.
    weights = model.trainable_variables
    before = [ops.convert_to_numpy(weight).copy() for weight in weights]
    model.optimizer.give_average(weights)
    try:
        yield
    finally:
        for weight, value in zip(weights, before):
            weight.assign(value)
