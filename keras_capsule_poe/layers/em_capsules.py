"""Matrix capsule layers with EM routing."""

import keras
import numpy as np

from keras_capsule_poe.functions.checks import whole_number
from keras_capsule_poe.functions.receptive_fields import ReceptiveFields
from keras_capsule_poe.layers.matrix_parents import MatrixParents


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvEMCapsules(MatrixParents):
    """Convolutional matrix capsules: each parent routes a window of the capsules below.

    EM routing fits a Gaussian cluster to the votes `V_ij = M_i W_ij` for each parent. The presets
    do not use these defaults, see the documentation of matrix capsules.

    Args:
        types: int, J, capsules at each position.
        kernel_size: int, height and width of a window, in positions.
        strides: int, positions between windows.
        iterations, schedule, inverse_temperature, compete, damping, variance_floor,
            assignment_temperature: See `functions.EMOptions`.
        normalize_mass: bool, divide the mass in the costs by its mean with all children active.
            Then the inverse temperature has the same effect in layers of any size.
        activation_scale: float, factor on beta_a. A large factor speeds up learning.
        kernel_initializer, kernel_regularizer: For the maps W. None is a truncated normal
            distribution of standard deviation 0.3.
        cost_initializer, activation_initializer: For beta_u and beta_a.
        implementation: `"streamed"` (fused, a few images at a time), `"compiled"` (the same, with
            XLA in training) or `"plain"` (the readable reference). The results agree.
        routing: `"em"`, or `"variational"`, see `functions.variational_routing`. The latter uses
            only `iterations`, and normalizes input poses and output log-odds over the batch.

    Call arguments:
        inputs: Poses (B, H, W, I, P, P) and activations (B, H, W, I).
        training: bool.

    Returns:
        Poses (B, h, w, J, P, P) and activations (B, h, w, J) in `[0, 1]`.

    Raises:
        ValueError: If an argument or an input shape is invalid.

    Example:
        >>> from keras_capsule_poe import PrimaryMatrixCapsules
        >>> primary = PrimaryMatrixCapsules(8)(np.ones((2, 7, 6, 16)))
        >>> pose, activation = ConvEMCapsules(5, kernel_size=3, strides=2)(primary)
        >>> activation.shape, pose.shape == (*activation.shape, 4, 4)
        (TensorShape([2, 3, 2, 5]), True)

    Reference:
        [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 4.
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
    """Matrix capsules that each route all capsules below: the class capsules of a network.

    Args:
        types: int, J, capsules.
        shared_weights: bool, use one map for each type below at all positions. Otherwise each
            capsule below has its own map.
        coordinates: bool, add the relative row and column of a capsule to the first two entries
            of its vote's last column. Without them, shared weights ignore the position.
        **kwargs: Routing arguments of `ConvEMCapsules`; `compete` must be `"all"`.

    Call arguments:
        inputs: Poses (B, H, W, I, P, P) and activations (B, H, W, I).
        training: bool.

    Returns:
        Poses `(B, 1, 1, J, P, P)` and activations `(B, 1, 1, J)` in `[0, 1]`.

    Raises:
        ValueError: If an argument or an input shape is invalid, or if `coordinates` is used with
            poses smaller than 2 x 2.

    Example:
        >>> from keras_capsule_poe import PrimaryMatrixCapsules
        >>> primary = PrimaryMatrixCapsules(8)(np.ones((2, 4, 4, 16)))
        >>> pose, activation = EMCapsules(10)(primary)
        >>> activation.shape, pose.shape == (*activation.shape, 4, 4)
        (TensorShape([2, 1, 1, 10]), True)

    Reference:
        [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 4.
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
