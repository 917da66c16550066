"""Layers of matrix capsules, whose parents are found by EM routing."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.checks import one_of, real_number, whole_number
from keras_capsule_poe.functions.em_routing import EMOptions, em_routing
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.receptive_fields import ReceptiveFields
from keras_capsule_poe.functions.streamed.em import route_matrices


class _MatrixCapsules(keras.layers.Layer):
    """Parents of windows of matrix capsules; how large the windows are is the subclass's."""

    def __init__(
        self,
        types,
        iterations=3,
        schedule="official",
        inverse_temperature=0.01,
        compete="all",
        damping=0.0,
        variance_floor=5e-4,
        activation_scale=1.0,
        kernel_initializer=None,
        kernel_regularizer=None,
        cost_initializer="zeros",
        activation_initializer="zeros",
        implementation="streamed",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.implementation = one_of("implementation", implementation, ("streamed", "plain"))
        self.types = whole_number("types", types)
        self.options = EMOptions(
            iterations, schedule, inverse_temperature, compete, damping, variance_floor
        )
        self.activation_scale = real_number("activation_scale", activation_scale)
        self._known = {}
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.TruncatedNormal(stddev=0.3)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.cost_initializer = keras.initializers.get(cost_initializer)
        self.activation_initializer = keras.initializers.get(activation_initializer)

    def _fields(self, height, width):
        raise NotImplementedError

    def build(self, input_shape):
        (_, height, width, inputs, size, _), _ = self._checked(input_shape)
        self.kernel = self.add_weight(
            shape=(*self._maps(height, width), inputs, self.types, size, size),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            name="kernel",
        )
        self.beta_u = self.add_weight(
            shape=(self.types,), initializer=self.cost_initializer, name="beta_u"
        )
        self.beta_a = self.add_weight(
            shape=(self.types,), initializer=self.activation_initializer, name="beta_a"
        )

    def call(self, inputs):
        if self.implementation == "plain":
            pose, activation, _ = self.route(inputs)
        else:
            pose, activation = self._streamed(*inputs)
        places = (-1, *self.fields(inputs[0]).shape, self.types)
        mean = ops.reshape(pose, (*places, *inputs[0].shape[-2:]))
        activation = ops.reshape(activation, places)
        return ops.cast(mean, self.compute_dtype), ops.cast(activation, self.compute_dtype)

    def route(self, inputs):
        """Poses, activations and assignments of the parents, see `functions.em_routing`.

        Args:
            inputs: Poses (B, H, W, I, P, P) and activations (B, H, W, I).

        Returns:
            `EMRouting`: (B, h w, J, P P), (B, h w, J) and (B, h w, K, I, J), of h x w parent
            places that see K child places each.
        """
        pose, activation = inputs
        fields = self.fields(pose)
        activation = fields.gather(_in_a_row(at_least_float32(activation)))
        return em_routing(self.votes(pose), activation, *self._betas(), fields, self.options)

    def _streamed(self, pose, activation):
        return route_matrices(
            _in_a_row(pose),
            _in_a_row(activation),
            self.kernel,
            *self._betas(),
            self.fields(pose),
            self.options,
            self._added(pose),
        )

    def _betas(self):
        beta_a = self.activation_scale * at_least_float32(self.beta_a)
        return at_least_float32(self.beta_u), beta_a

    def _added(self, pose):
        """What is added to the votes of each place, (K, P P); None: nothing."""
        return None

    def votes(self, pose):
        """V_ij = M_i W_ij of each child, (B, h w, K, I, J, P P), at least float32.

        Args:
            pose: Tensor (B, H, W, I, P, P).
        """
        seen = self.fields(pose).gather(_in_a_row(at_least_float32(pose)))
        kernel = at_least_float32(self.kernel)
        maps = "kijno" if len(kernel.shape) == 5 else "ijno"
        votes = ops.einsum(f"bpkimn,{maps}->bpkijmo", seen, kernel)
        votes = ops.reshape(votes, (*ops.shape(votes)[:-2], pose.shape[-2] * pose.shape[-1]))
        added = self._added(pose)
        return votes if added is None else votes + ops.cast(added[:, None, None], votes.dtype)

    def fields(self, pose):
        """The `ReceptiveFields` of the parents of poses (B, H, W, I, P, P)."""
        grid = tuple(pose.shape[1:3])
        if grid not in self._known:
            self._known[grid] = self._fields(*grid)
        return self._known[grid]

    def _maps(self, height, width):
        """How many places of a window have maps of their own; () where all share them."""
        return self._fields(height, width).children.shape[1:]

    def _checked(self, input_shape):
        is_pair = isinstance(input_shape, (tuple, list)) and len(input_shape) == 2
        pose, activation = map(tuple, input_shape) if is_pair else ((), ())
        known = len(pose) == 6 and None not in pose[1:] and pose[1:4] == activation[1:]
        if not known or pose[4] != pose[5]:
            raise ValueError(
                f"{type(self).__name__} needs poses (batch, height, width, types, size, size) and "
                "activations (batch, height, width, types), all sizes but the batch known. "
                f"Received: input_shape={input_shape}"
            )
        return pose, activation

    def compute_output_shape(self, input_shape):
        pose, _ = self._checked(input_shape)
        places = (pose[0], *self._fields(*pose[1:3]).shape, self.types)
        return (*places, *pose[4:]), places

    def get_config(self):
        return {
            **super().get_config(),
            "types": self.types,
            **dataclasses.asdict(self.options),
            "activation_scale": self.activation_scale,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "cost_initializer": keras.initializers.serialize(self.cost_initializer),
            "activation_initializer": keras.initializers.serialize(self.activation_initializer),
            "implementation": self.implementation,
        }


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ConvEMCapsules(_MatrixCapsules):
    """Convolutional matrix capsules: each sees a window of the capsules below, by EM routing.

    Args:
        types: int, J, capsules at each place.
        kernel_size: int, height and width of a window, in places.
        strides: int, places from one window to the next.
        iterations, schedule, inverse_temperature, compete, damping, variance_floor: See
            `functions.EMOptions`.
        activation_scale: float, factor on the weight beta_a; with a large one it learns faster.
        kernel_initializer, kernel_regularizer: For the maps W; None: a truncated normal
            distribution of standard deviation 0.3.
        cost_initializer, activation_initializer: For beta_u and beta_a.
        implementation: `"streamed"`, a few images at a time, or `"plain"`, the readable
            reference. Both give the same numbers.
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

    def _fields(self, height, width):
        return ReceptiveFields(height, width, self.kernel_size, self.strides)

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "strides": self.strides,
        }


@keras.saving.register_keras_serializable("keras_capsule_poe")
class EMCapsules(_MatrixCapsules):
    """Matrix capsules that each see all capsules below, by EM routing: the last layer, of classes.

    Args:
        types: int, J, capsules.
        shared_weights: bool, whether capsules of one type below have one map, wherever they are;
            else each has its own.
        coordinates: bool, whether the place of a capsule below is added to its vote: row and
            column, as shares of the grid, to the first two numbers of the last column. Without
            it shared weights forget where things are.
        iterations, schedule, inverse_temperature, compete, damping, variance_floor: See
            `functions.EMOptions`.
        activation_scale: float, factor on the weight beta_a; with a large one it learns faster.
        kernel_initializer, kernel_regularizer: For the maps W; None: a truncated normal
            distribution of standard deviation 0.3.
        cost_initializer, activation_initializer: For beta_u and beta_a.
        implementation: `"streamed"`, a few images at a time, or `"plain"`, the readable
            reference. Both give the same numbers.
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
        self.shared_weights, self.coordinates = bool(shared_weights), bool(coordinates)

    def _fields(self, height, width):
        return ReceptiveFields(height, width)

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


def _in_a_row(x):
    """(B, H, W, ...) as (B, H W, ...)."""
    return ops.reshape(x, (-1, x.shape[1] * x.shape[2], *x.shape[3:]))
