"""Averages of weights over the last steps: what is judged and saved, while training goes on."""

import contextlib

import keras
from keras import ops

from keras_capsule_poe.training.optimizers import ConvolutionMuon


class KeepsAverage:
    """To be mixed into an optimizer that may have Keras' `use_ema`: training goes on by itself.

    Keras puts the average in the place of the weights whenever `fit` ends. A training that is taken
    up inside an epoch is a call of `fit` for that epoch, and another for those that follow, and
    must end as if there had been one.
    """

    def finalize_variable_values(self, var_list):
        """Leaves the weights as they are."""

    def give_average(self, variables):
        """Assigns to all trainable variables the average that is kept of them."""
        super().finalize_variable_values(variables)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class AveragedAdam(KeepsAverage, keras.optimizers.Adam):
    """Adam, see `KeepsAverage`."""


@keras.saving.register_keras_serializable("keras_capsule_poe")
class AveragedMuon(KeepsAverage, ConvolutionMuon):
    """`ConvolutionMuon`, see `KeepsAverage`."""


@contextlib.contextmanager
def averaged(model):
    """While open, a model has the average of its weights, if its optimizer is to keep one.

    The average begins with the weights after the first step. Statistics of normalised batches, and
    what the optimizer knows of gradients, stay those of the weights as they are.

    Args:
        model: Compiled Keras model that has been trained by a step or more; with `use_ema` its
            optimizer must be a `KeepsAverage`.

    Raises:
        ValueError: If its optimizer has `use_ema` and is of Keras alone.

    Examples:

    >>> model = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
    >>> model.compile(AveragedAdam(0.1, use_ema=True, ema_momentum=0.9), loss="mse")
    >>> history = model.fit(np.ones((4, 2)), np.zeros(4), epochs=3, verbose=0)
    >>> now = model.get_weights()[0]
    >>> with averaged(model):
    ...     bool(np.abs(model.get_weights()[0] - now).max() > 0.01)
    True
    >>> bool((model.get_weights()[0] == now).all())
    True

    Reference:

    - [Polyak & Juditsky, 1992](https://doi.org/10.1137/0330046), averages of all steps
    """
    if not model.optimizer.use_ema:
        yield
        return
    if not isinstance(model.optimizer, KeepsAverage):
        raise ValueError(
            "An optimizer with `use_ema` must be a `KeepsAverage`, as `AveragedAdam` is. "
            f"Received: {type(model.optimizer).__name__}"
        )
    weights = model.trainable_variables
    before = [ops.convert_to_numpy(weight).copy() for weight in weights]
    model.optimizer.give_average(weights)
    try:
        yield
    finally:
        for weight, value in zip(weights, before):
            weight.assign(value)
