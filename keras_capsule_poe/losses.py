"""Losses of supervised capsules."""

from typing import Any

import keras
from keras import ops

from keras_capsule_poe.core.numerics import one_of, real_number, share


@keras.saving.register_keras_serializable("keras_capsule_poe")
class MarginLoss(keras.losses.Loss):
    """Margin loss on the lengths of class capsules, for images with any number of labels.

    `L = sum_k T_k max(0, m+ - |v_k|)^2 + w (1 - T_k) max(0, |v_k| - m-)^2`

    Args:
        positive: float, m+, target length of a present class.
        negative: float, m-, length above which an absent class is penalized.
        absent_weight: float, w, weight of the absent classes. A small weight keeps early learning
            from shrinking all capsules.
        reduction, name, dtype: See `keras.losses.Loss`.
        scaling: `"sum"` over the classes, or `"official"`, half of their mean, as in the published
            code. Then added losses, such as a reconstruction loss, count more.

    Call arguments:
        y_true: Tensor (B, J) of zeros and ones.
        y_pred: Tensor (B, J), lengths in `[0, 1]`.

    Returns:
        Scalar, or (B,) with `reduction=None`.

    Raises:
        ValueError: If an argument is not positive, or if the shapes differ.

    Example:
        >>> loss = MarginLoss()(np.array([[1.0, 0.0]]), np.array([[0.4, 0.3]]))
        >>> round(float(loss), 4)  # 0.5^2 + 0.5 * 0.2^2
        0.27

    Reference:
        [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Equation 4.
    """

    def __init__(
        self,
        positive: float = 0.9,
        negative: float = 0.1,
        absent_weight: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str = "margin_loss",
        dtype: Any = None,
        scaling: str = "sum",
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.positive = real_number("positive", positive, above=0)
        self.negative = real_number("negative", negative, above=0)
        self.absent_weight = real_number("absent_weight", absent_weight, above=0)
        self.scaling = one_of("scaling", scaling, ("sum", "official"))

    def call(self, y_true, y_pred):
        y_pred = ops.convert_to_tensor(y_pred)
        y_true = _like(y_true, y_pred)
        present = ops.square(ops.maximum(self.positive - y_pred, 0))
        absent = ops.square(ops.maximum(y_pred - self.negative, 0))
        each = y_true * present + self.absent_weight * (1 - y_true) * absent
        return ops.sum(each, axis=-1) if self.scaling == "sum" else ops.mean(each, axis=-1) / 2

    def get_config(self):
        return {
            **super().get_config(),
            "positive": self.positive,
            "negative": self.negative,
            "absent_weight": self.absent_weight,
            "scaling": self.scaling,
        }


@keras.saving.register_keras_serializable("keras_capsule_poe")
class SpreadLoss(keras.losses.Loss):
    """Spread loss: each present class must exceed each absent class by a margin.

    `L = sum_t sum_k max(0, m - (a_t - a_k))^2` over present classes t and absent classes k. A
    large margin at the start lets capsules die, so `SpreadMargin` increases it during training.

    Args:
        margin: float in `(0, 1]`, m.
        scaling: `"sum"` over the classes, or `"official"`, their mean.
        reduction, name, dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: Tensor (B, J) of zeros and ones.
        y_pred: Tensor (B, J), activations in `[0, 1]`.

    Returns:
        Scalar, or (B,) with `reduction=None`.

    Raises:
        ValueError: If an argument is invalid, or if the shapes differ.

    Example:
        >>> loss = SpreadLoss(margin=0.5)(np.array([[1.0, 0.0, 0.0]]), np.array([[0.4, 0.3, 0.0]]))
        >>> round(float(loss), 4)  # (0.5 - 0.1)^2 + (0.5 - 0.4)^2
        0.17

    Reference:
        [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Equation 3.
    """

    def __init__(
        self,
        margin: float = 0.9,
        scaling: str = "sum",
        reduction: str | None = "sum_over_batch_size",
        name: str = "spread_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.scaling = one_of("scaling", scaling, ("sum", "official"))
        # A variable, so that traced graphs see changes.
        self.margin_variable = keras.Variable(
            share("margin", margin), trainable=False, name="margin"
        )

    @property
    def margin(self):
        """Current margin m."""
        # Under a strategy Keras makes no float of a variable.
        return float(ops.convert_to_numpy(self.margin_variable))

    def set_margin(self, margin):
        """Set the margin m, a float in `(0, 1]`."""
        self.margin_variable.assign(share("margin", margin))

    def call(self, y_true, y_pred):
        y_pred = ops.convert_to_tensor(y_pred)
        y_true = _like(y_true, y_pred)
        margin = ops.cast(self.margin_variable, y_pred.dtype)
        above = y_pred[..., :, None] - y_pred[..., None, :]
        short = ops.square(ops.maximum(margin - above, 0))
        each = (1 - y_true) * ops.sum(y_true[..., :, None] * short, axis=-2)
        return ops.sum(each, axis=-1) if self.scaling == "sum" else ops.mean(each, axis=-1)

    def get_config(self):
        return {**super().get_config(), "margin": self.margin, "scaling": self.scaling}


def _like(y_true, y_pred):
    """Cast labels to the dtype of the predictions. Raise a ValueError if the shapes differ."""
    y_true = ops.cast(y_true, y_pred.dtype)
    if len(y_pred.shape) != 2 and len(y_true.shape) == 2:
        raise ValueError(
            "`y_pred` must have shape (batch, classes). keras.layers.Flatten makes it from the "
            "activations of EMCapsules, CapsuleLength from capsules. "
            f"Received: y_pred of shape {tuple(y_pred.shape)}"
        )
    known = [pair for pair in zip(y_true.shape, y_pred.shape) if None not in pair]
    if len(y_true.shape) != len(y_pred.shape) or any(a != b for a, b in known):
        raise ValueError(
            "`y_true` must have the shape of `y_pred`, (batch, classes); "
            "keras.utils.to_categorical makes it from integers. "
            f"Received: shapes {tuple(y_true.shape)} and {tuple(y_pred.shape)}"
        )
    return y_true
