"""Squash as a layer."""

import keras

from keras_capsule_poe.functions.checks import one_of
from keras_capsule_poe.functions.squash import exponential_squash, squash

SQUASHES = {"quadratic": squash, "exponential": exponential_squash}


@keras.saving.register_keras_serializable("keras_capsule_poe")
class Squash(keras.layers.Layer):
    """Squash, which shrinks vectors to lengths below one.

    Args:
        kind: `"quadratic"` for the length `|z|^2/(1 + |z|^2)`, or `"exponential"` for
            `1 - exp(-|z|)`.

    Call arguments:
        inputs: Tensor (..., E).

    Returns:
        Tensor (..., E).

    Raises:
        ValueError: If `kind` is unknown.

    Example:
        >>> Squash()(np.array([[0.0, 1.0]], "float32")).numpy().tolist()
        [[0.0, 0.5]]

    Reference:
        - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Equation 1.
        - [Mazzia et al., 2021](https://doi.org/10.1038/s41598-021-93977-0), Equation 3.
    """

    def __init__(self, kind="quadratic", **kwargs):
        super().__init__(**kwargs)
        self.kind = one_of("kind", kind, tuple(SQUASHES))

    def call(self, inputs):
        return SQUASHES[self.kind](inputs)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)

    def get_config(self):
        return {**super().get_config(), "kind": self.kind}
