"""Muon for convolutions (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/).

`keras.optimizers.Muon` updates only matrices. Here filters (h, w, C, F) and maps (I, J, E, D) are
updated as matrices, too: (h w C, F). Step size: Liu et al., 2025, https://arxiv.org/abs/2502.16982.
"""

import math

import keras
from keras import ops


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
        momentum = self._filter_momentums[self._get_variable_index(variable)]
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
