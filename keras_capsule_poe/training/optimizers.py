"""Muon for convolutions."""

import math

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvolutionMuon(keras.optimizers.Adam):
    """Muon for convolutions: the momentum of filters is made orthogonal before they move.

    `keras.optimizers.Muon` does that for matrices alone, and leaves all filters to Adam.
    Filters (h, w, C, F) are moved as the matrix (h w C, F): by the nearest matrix of orthogonal
    columns to their momentum, so that all directions learn at the same speed. Maps of capsules
    (I, J, E, D) are such weights, too. Biases, and weights whose last two axes are not both 8 or
    more, have no such matrix to speak of and move by Adam.

    Args:
        learning_rate: float or schedule, for both.
        momentum: float in [0, 1).
        newton_schulz: int, iterations of the orthogonalisation.
        **kwargs: `keras.optimizers.Adam` arguments.

    Reference:

    - [Jordan et al., 2024](https://kellerjordan.github.io/posts/muon/)
    - [Liu et al., 2025](https://arxiv.org/abs/2502.16982), the size of a step
    """

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
        momentum = self._filter_momentums[self._get_variable_index(variable)]
        if momentum is None:
            return super().update_step(gradient, variable, learning_rate)
        gradient = ops.cast(gradient, variable.dtype)
        self.assign(momentum, self.momentum * momentum + gradient)
        matrix = ops.reshape(gradient + self.momentum * momentum, (-1, variable.shape[-1]))
        # As long as a step of Adam, in which an entry moves by about 0.2 of the rate.
        size = 0.2 * math.sqrt(max(matrix.shape)) * ops.cast(learning_rate, variable.dtype)
        step = orthogonalized(matrix, self.newton_schulz, size)
        self.assign_sub(variable, ops.reshape(step, variable.shape))

    def get_config(self):
        more = {"momentum": self.momentum, "newton_schulz": self.newton_schulz}
        return {**super().get_config(), **more}


def orthogonalized(matrix, iterations=5, size=1.0):
    """`size` times about the nearest matrix of orthogonal columns (or rows, where those are fewer).

    Quintic Newton-Schulz iterations with the coefficients of Jordan et al., which bring singular
    values near one, and not to one. Each iteration multiplies X by a polynomial of X^T X, and all
    of these commute: they are taken on the small X^T X, and X is multiplied once. The length that X
    is divided by is known from the trace, so that no more passes over X are made.

    Args:
        matrix: Tensor (N, M).
        iterations: int.
        size: float or scalar tensor.

    Returns:
        Tensor (N, M).
    """
    if matrix.shape[0] < matrix.shape[1]:
        return ops.transpose(orthogonalized(ops.transpose(matrix), iterations, size))
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
