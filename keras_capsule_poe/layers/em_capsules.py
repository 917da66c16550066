"""Layers of matrix capsules, whose parents are found by EM routing."""

import keras
import numpy as np

from keras_capsule_poe.functions.checks import whole_number
from keras_capsule_poe.functions.receptive_fields import ReceptiveFields
from keras_capsule_poe.layers.matrix_parents import MatrixParents


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvEMCapsules(MatrixParents):
    """Convolutional matrix capsules: each sees a window of the capsules below, by EM routing.

    The recipes have other values than these defaults, with which a network learns within an epoch
    (`small`), or those of the published code (`official`).

    Args:
        types: int, J, capsules at each place.
        kernel_size: int, height and width of a window, in places.
        strides: int, places from one window to the next.
        iterations, schedule, inverse_temperature, compete, damping, variance_floor,
            assignment_temperature: See `functions.EMOptions`.
        normalize_mass: bool, whether masses in the costs are divided by the children that there
            are for each parent, so that lambda means the same in layers of few and of many.
        activation_scale: float, factor on the weight beta_a; with a large one it learns faster.
        kernel_initializer, kernel_regularizer: For the maps W; None: a truncated normal
            distribution of standard deviation 0.3.
        cost_initializer, activation_initializer: For beta_u and beta_a.
        implementation: `"streamed"`, a few images at a time; `"compiled"`, the same and in graphs
            of training by XLA; or `"plain"`, the readable reference. All give the same numbers.
        routing: `"em"`, or `"variational"`, see `functions.variational_routing`: of the options
            of EM it has `iterations` alone, and no form but the readable one. The poses below
            and the log-odds of the activations are then normalised over the batch.
        **kwargs: Base layer arguments.

    Call arguments:
        inputs: Poses (B, H, W, I, P, P) and activations (B, H, W, I).

    Returns:
        Poses (B, h, w, J, P, P) and activations (B, h, w, J) in [0, 1].

    Raises:
        ValueError: If an argument is not as above, or the inputs' shapes are not.

    Examples:

    >>> from keras_capsule_poe import PrimaryMatrixCapsules
    >>> primary = PrimaryMatrixCapsules(8)(np.ones((2, 7, 6, 16)))
    >>> pose, activation = ConvEMCapsules(5, kernel_size=3, strides=2)(primary)
    >>> pose.shape, activation.shape
    (TensorShape([2, 3, 2, 5, 4, 4]), TensorShape([2, 3, 2, 5]))

    Reference:

    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 4
    """

    def __init__(self, types, kernel_size=3, strides=1, **kwargs):
        super().__init__(types, **kwargs)
        self.kernel_size = whole_number("kernel_size", kernel_size)
        self.strides = whole_number("strides", strides)

    def make_fields(self, height, width):
        return ReceptiveFields(height, width, self.kernel_size, self.strides)

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "strides": self.strides,
        }


@keras.saving.register_keras_serializable("keras_capsule_poe")
class EMCapsules(MatrixParents):
    """Matrix capsules that each see all capsules below, by EM routing: the last layer, of classes.

    The recipes have other values than these defaults, see `ConvEMCapsules`.

    Args:
        types: int, J, capsules.
        shared_weights: bool, whether capsules of one type below have one map, wherever they are;
            else each has its own.
        coordinates: bool, whether the place of a capsule below is added to its vote: row and
            column, as shares of the grid, to the first two numbers of the last column. Without
            it shared weights forget where things are.
        iterations, schedule, inverse_temperature, damping, variance_floor,
            assignment_temperature: See `functions.EMOptions`; `compete` is `"all"`.
        normalize_mass: bool, whether masses in the costs are divided by the children that there
            are for each parent, so that lambda means the same in layers of few and of many.
        activation_scale: float, factor on the weight beta_a; with a large one it learns faster.
        kernel_initializer, kernel_regularizer: For the maps W; None: a truncated normal
            distribution of standard deviation 0.3.
        cost_initializer, activation_initializer: For beta_u and beta_a.
        implementation: `"streamed"`, a few images at a time; `"compiled"`, the same and in graphs
            of training by XLA; or `"plain"`, the readable reference. All give the same numbers.
        routing: `"em"`, or `"variational"`, see `functions.variational_routing`: of the options
            of EM it has `iterations` alone, and no form but the readable one. The poses below
            and the log-odds of the activations are then normalised over the batch.
        **kwargs: Base layer arguments.

    Call arguments:
        inputs: Poses (B, H, W, I, P, P) and activations (B, H, W, I).

    Returns:
        Poses (B, 1, 1, J, P, P) and activations (B, 1, 1, J) in [0, 1].

    Raises:
        ValueError: If an argument is not as above, the inputs' shapes are not, or coordinates are
            to be added to poses of less than 2 x 2.

    Examples:

    >>> from keras_capsule_poe import PrimaryMatrixCapsules
    >>> primary = PrimaryMatrixCapsules(8)(np.ones((2, 4, 4, 16)))
    >>> pose, activation = EMCapsules(10)(primary)
    >>> pose.shape, activation.shape
    (TensorShape([2, 1, 1, 10, 4, 4]), TensorShape([2, 1, 1, 10]))

    Reference:

    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 4
    """

    def __init__(self, types, shared_weights=True, coordinates=True, **kwargs):
        super().__init__(types, **kwargs)
        if self.options.compete == "places":
            raise ValueError(
                "Capsules that see all places have one place, so that their types must compete: "
                "`compete` must be 'all'. Received: compete='places'"
            )
        self.shared_weights, self.coordinates = bool(shared_weights), bool(coordinates)

    def make_fields(self, height, width):
        return ReceptiveFields(height, width)

    @property
    def _any_size(self):
        return self.shared_weights

    def _maps(self, height, width):
        return () if self.shared_weights else super()._maps(height, width)

    def _checked(self, input_shape):
        pose, activation = super()._checked(input_shape)
        if self.coordinates and pose[-1] < 2:
            raise ValueError(
                "`coordinates` need poses of at least 2x2. Received: "
                f"coordinates=True, poses of {pose[-2]}x{pose[-1]}"
            )
        return pose, activation

    def _added(self, pose):
        if not self.coordinates:
            return None
        height, width, _, rows, columns = pose.shape[1:]
        place = np.zeros((height, width, rows, columns))
        place[..., 0, -1] = ((np.arange(height) + 0.5) / height)[:, None]
        place[..., 1, -1] = (np.arange(width) + 0.5) / width
        return place.reshape(height * width, -1)

    def get_config(self):
        return {
            **super().get_config(),
            "shared_weights": self.shared_weights,
            "coordinates": self.coordinates,
        }
