"""Optimizers and their learning-rate schedules."""

import math

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvolutionMuon(keras.optimizers.Adam):
    """Muon for convolutions: the momentum of filters is made orthogonal before they move.

    `keras.optimizers.Muon` does that for matrices alone, and leaves all filters to Adam.
    Filters (h, w, C, F) are moved as the matrix (h w C, F): by the nearest matrix of orthogonal
    columns to their momentum, so that all directions learn at the same speed. Biases, and the
    filters next to images of few channels, have no such matrix to speak of and move by Adam.

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
        step = size * orthogonalized(matrix, self.newton_schulz)
        self.assign_sub(variable, ops.reshape(step, variable.shape))

    def get_config(self):
        more = {"momentum": self.momentum, "newton_schulz": self.newton_schulz}
        return {**super().get_config(), **more}


def orthogonalized(matrix, iterations=5):
    """About the nearest matrix of orthogonal columns (or rows, where those are fewer).

    Quintic Newton-Schulz iterations with the coefficients of Jordan et al., which bring singular
    values near one, and not to one. Each iteration multiplies X by a polynomial of X^T X, and all
    of these commute: they are taken on the small X^T X, and X is multiplied once.

    Args:
        matrix: Tensor (N, M).
        iterations: int.

    Returns:
        Tensor (N, M).
    """
    if matrix.shape[0] < matrix.shape[1]:
        return ops.transpose(orthogonalized(ops.transpose(matrix), iterations))
    length = ops.sqrt(ops.sum(ops.square(matrix))) + 1e-7
    matrix = matrix / length
    gram = ops.matmul(ops.transpose(matrix), matrix)
    unit = ops.eye(matrix.shape[1], dtype=matrix.dtype)
    factor = unit
    for _ in range(iterations):
        step = 3.4445 * unit - 4.7750 * gram + 2.0315 * ops.matmul(gram, gram)
        factor = ops.matmul(factor, step)
        gram = ops.matmul(ops.matmul(step, gram), step)
    return ops.matmul(matrix, factor)


def _has_matrix(variable):
    return len(variable.shape) == 4 and min(variable.shape[2:]) >= 8


def for_autoencoder(
    decay_steps, optimizer="muon", learning_rate=2e-3, final_rate=0.02, weight_decay=2.0
):
    """Muon, or Adam, with a short warm-up and a cosine decay.

    Args:
        decay_steps: int, how many steps training takes in all.
        optimizer: `"muon"` or `"adam"`.
        learning_rate: float, the highest.
        final_rate: float, the last rate over the highest.
        weight_decay: float, how fast weights that nothing holds up shrink, in units of the
            learning rate; it keeps the features in few directions.

    Raises:
        ValueError: If `optimizer` is unknown or a number is out of range.
    """
    kinds = {"muon": ConvolutionMuon, "adam": keras.optimizers.Adam}
    if optimizer not in kinds:
        listed = " or ".join(repr(kind) for kind in kinds)
        raise ValueError(f"`optimizer` must be {listed}. Received: optimizer={optimizer!r}")
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
    return kinds[optimizer](rate, weight_decay=weight_decay or None)


def for_capsules(decay_steps, learning_rate=0.2, momentum=0.9, final_rate=0.1):
    """SGD with momentum whose rate decays along a cosine.

    Args:
        decay_steps: int, how many steps training takes in all.
        learning_rate: float, the first.
        momentum: float in [0, 1).
        final_rate: float, the last rate over the first.

    Raises:
        ValueError: If a number is out of range.
    """
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
