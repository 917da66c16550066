"""Muon for convolutions (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/).

`keras.optimizers.Muon` updates only matrices. Here filters (h, w, C, F) and maps (I, J, E, D) are
updated as matrices, too: (h w C, F). Step size: Liu et al., 2025, https://arxiv.org/abs/2502.16982.
"""

import contextlib
import math

import keras
from keras import ops

from keras_capsule_poe.keras_private import variable_index


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvolutionMuon(keras.optimizers.Adam):
    """Muon for 4D weights whose last two axes are 8 or more, Adam for all others."""

    def __init__(self, learning_rate=2e-3, momentum=0.95, newton_schulz=5, **kwargs):
        super().__init__(learning_rate, **{"name": "convolution_muon", **kwargs})
        self.momentum = momentum
        self.newton_schulz = newton_schulz

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._filter_momentums = [
            self.add_variable_from_reference(variable, name="filter_momentum")
            if _has_matrix(variable)
            else None
            for variable in variables
        ]

    def update_step(self, gradient, variable, learning_rate):
        momentum = self._filter_momentums[variable_index(self, variable)]
        if momentum is None:
            return super().update_step(gradient, variable, learning_rate)
        gradient = ops.cast(gradient, variable.dtype)
        self.assign(momentum, self.momentum * momentum + gradient)
        matrix = ops.reshape(gradient + self.momentum * momentum, (-1, variable.shape[-1]))
        # As long as an Adam step, which changes an entry by about 0.2 times the learning rate.
        size = 0.2 * math.sqrt(max(matrix.shape)) * ops.cast(learning_rate, variable.dtype)
        step = orthogonalized(matrix, self.newton_schulz, size)
        self.assign_sub(variable, ops.reshape(step, variable.shape))

    def get_config(self):
        more = {"momentum": self.momentum, "newton_schulz": self.newton_schulz}
        return {**super().get_config(), **more}


def orthogonalized(matrix, iterations=5, size=1.0):
    """Return `size` times an approximation of the nearest orthogonal matrix to (N, M)."""
    if matrix.shape[0] < matrix.shape[1]:
        return ops.transpose(orthogonalized(ops.transpose(matrix), iterations, size))
    # Quintic Newton-Schulz iterations with coefficients of Jordan et al. bring the singular values
    # near one. They multiply X by polynomials of X^T X, which commute: the product of these is
    # computed on the small X^T X, and X is multiplied only once.
    gram = ops.matmul(ops.transpose(matrix), matrix)
    length = ops.sqrt(ops.trace(gram)) + 1e-7
    gram = gram / ops.square(length)
    unit = ops.eye(matrix.shape[1], dtype=matrix.dtype)
    factor = unit * (size / length)
    for _ in range(iterations):
        step = 3.4445 * unit - 4.7750 * gram + 2.0315 * ops.matmul(gram, gram)
        factor = ops.matmul(factor, step)
        gram = ops.matmul(ops.matmul(step, gram), step)
    return ops.matmul(matrix, factor)


def _has_matrix(variable):
    return len(variable.shape) == 4 and min(variable.shape[2:]) >= 8


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
