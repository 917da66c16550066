"""Layers of matrix capsules: primary ones, and convolutional and full ones with EM routing."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Identifier
from keras_capsule_poe.core.arguments import Configured
from keras_capsule_poe.core.maps import ReceptiveFields
from keras_capsule_poe.core.numerics import at_least_float32, one_of, real_number, whole_number
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.models.matrix_capsules.fused_em import route_matrices
from keras_capsule_poe.models.matrix_capsules.routing import (
    EMOptions,
    VariationalOptions,
    em_steps,
    variational_steps,
)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class PrimaryMatrixCapsules(Configured, keras.layers.Layer):
    """Primary matrix capsules: linear maps from features to poses and activations.

    Args:
        types: int, I, capsules at each position.
        size: int, P, height and width of a pose matrix.
        activation_bias: float, added to the log-odds of the activations.
        pose_initializer, activation_initializer: For the maps to poses and to log-odds.
        kernel_regularizer: For both maps.

    Call arguments:
        features: Tensor (B, H, W, F).

    Returns:
        Poses (B, H, W, I, P, P) and activations (B, H, W, I) in `(0, 1)`.

    Raises:
        ValueError: If an argument is invalid.

    Example:
        >>> pose, activation = PrimaryMatrixCapsules(8)(np.ones((2, 6, 5, 16)))
        >>> activation.shape, pose.shape == (*activation.shape, 4, 4)
        (TensorShape([2, 6, 5, 8]), True)

    Reference:
        [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 4.
    """

    def __init__(
        self,
        types: int,
        size: int = 4,
        activation_bias: float = 0.0,
        pose_initializer: Identifier = "glorot_uniform",
        activation_initializer: Identifier = "glorot_uniform",
        kernel_regularizer: Identifier = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.types, self.size = whole_number("types", types), whole_number("size", size)
        self.activation_bias = real_number("activation_bias", activation_bias)
        self.pose_initializer = keras.initializers.get(pose_initializer)
        self.activation_initializer = keras.initializers.get(activation_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)

    def build(self, input_shape):
        features = input_shape[-1]
        self.input_spec = keras.layers.InputSpec(ndim=4, axes={-1: features})

        def kernel(name, columns, initializer):
            return self.add_weight(
                shape=(features, columns),
                initializer=initializer,
                regularizer=self.kernel_regularizer,
                name=name,
            )

        self.pose_kernel = kernel("pose", self.types * self.size**2, self.pose_initializer)
        self.activation_kernel = kernel("activation", self.types, self.activation_initializer)

    def call(self, features):
        pose = ops.matmul(features, self.pose_kernel)
        log_odds = ops.matmul(features, self.activation_kernel) + self.activation_bias
        shape = (-1, *ops.shape(features)[1:3], self.types, self.size, self.size)
        return ops.reshape(pose, shape), ops.sigmoid(log_odds)

    def compute_output_shape(self, input_shape):
        places = (*input_shape[:3], self.types)
        return (*places, self.size, self.size), places


IMPLEMENTATIONS = ("fused", "xla", "reference")


@with_former_names
class MatrixParents(Configured, keras.layers.Layer):
    """Base of matrix capsule layers. Subclasses define the windows in `make_fields`."""

    def __init__(
        self,
        types,
        routing_iterations=3,
        schedule="official",
        inverse_temperature=0.01,
        compete="all",
        damping=0.0,
        variance_floor=5e-4,
        assignment_temperature=1.0,
        normalize_mass=False,
        activation_scale=1.0,
        kernel_initializer=None,
        kernel_regularizer=None,
        cost_initializer="zeros",
        activation_initializer="zeros",
        implementation="fused",
        routing="em",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.routing = one_of("routing", routing, ("em", "variational"))
        self.implementation = one_of("implementation", implementation, IMPLEMENTATIONS)
        self.types = whole_number("types", types)
        self.options = EMOptions(
            routing_iterations,
            schedule,
            inverse_temperature,
            compete,
            damping,
            variance_floor,
            assignment_temperature,
        )
        self.normalize_mass = bool(normalize_mass)
        self.activation_scale = real_number("activation_scale", activation_scale)
        self._known = {}
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.TruncatedNormal(stddev=0.3)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.cost_initializer = keras.initializers.get(cost_initializer)
        self.activation_initializer = keras.initializers.get(activation_initializer)

    def make_fields(self, height, width):
        """Return the `ReceptiveFields` of the parents of a height x width grid of children."""
        raise NotImplementedError

    def build(self, input_shape):
        (_, height, width, inputs, size, _), _ = self._checked(input_shape)
        place = {} if self._any_size else {1: height, 2: width}
        self.input_spec = [
            keras.layers.InputSpec(ndim=6, axes={**place, 3: inputs, 4: size, 5: size}),
            keras.layers.InputSpec(ndim=4, axes={**place, 3: inputs}),
        ]
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
        if self.routing == "variational":
            # No scale or offset, as published: the priors expect votes of size about one.
            how = {"momentum": 0.9, "epsilon": 1e-5, "center": False, "scale": False}
            how["dtype"] = self.variable_dtype
            self.pose_normalization = keras.layers.BatchNormalization(axis=3, **how)
            self.log_odds_normalization = keras.layers.BatchNormalization(axis=2, **how)
            self.pose_normalization.build(input_shape[0])
            self.log_odds_normalization.build((None, None, self.types))

    @property
    def _any_size(self):
        """True if the maps fit a grid of any size."""
        return True

    def call(self, inputs, training=None):
        self._checked([tuple(part.shape) for part in inputs])
        if self.implementation == "reference" or self.routing == "variational":
            pose, activation, _ = self.route(inputs, training)
        else:
            compiled = self.implementation == "xla" and training
            pose, activation = self._fused(*inputs, compiled)
        places = (-1, *self.fields(inputs[0]).shape, self.types)
        mean = ops.reshape(pose, (*places, *inputs[0].shape[-2:]))
        activation = ops.reshape(activation, places)
        return ops.cast(mean, self.compute_dtype), ops.cast(activation, self.compute_dtype)

    def route(self, inputs, training=False):
        """Return `EMRouting`: poses, activations, assignment probabilities (B, h w, K, I, J)."""
        last = self.steps(inputs, training)[-1]
        if self.routing == "variational":
            log_odds = self.log_odds_normalization(last.log_odds, training=training)
            last = last._replace(log_odds=log_odds)
        return last.routing

    def steps(self, inputs, training=False):
        """Return the `RoutingStep` of each iteration, a list."""
        pose, activation = inputs
        fields = self.fields(pose)
        activation = fields.gather(_in_a_row(at_least_float32(activation)))
        more = activation, *self._betas(pose), fields
        if self.routing == "em":
            return em_steps(self.votes(pose), *more, self._options(pose))
        votes = self.votes(self.pose_normalization(pose, training=training))
        return variational_steps(votes, *more, VariationalOptions(self.options.routing_iterations))

    def couplings_to(self, parent, inputs):
        """Return the assignment probabilities to a parent (B,), (B, T, H, W, I); NaN if unseen."""
        fields, types = self.fields(inputs[0]), inputs[0].shape[3]
        place = ops.one_hot(parent // self.types, len(fields.children))
        j = ops.one_hot(parent % self.types, self.types)
        found = [
            ops.einsum("bpkij,bp,bj->bki", ops.cast(step.routing.assignment, "float32"), place, j)
            for step in self.steps(inputs)
        ]
        # One-hot grid position of each position in the parent's window.
        windows = ops.one_hot(fields.children, fields.grid[0] * fields.grid[1])
        windows = ops.einsum("bp,pkn->bkn", place, windows)
        is_seen = ops.max(windows, axis=1, initial=0.0)[:, None, :, None] > 0
        grid = ops.einsum("btki,bkn->btni", ops.stack(found, axis=1), windows)
        grid = ops.where(is_seen, grid, float("nan"))
        return ops.reshape(grid, (-1, len(found), *fields.grid, types))

    def _fused(self, pose, activation, compiled):
        return route_matrices(
            _in_a_row(pose),
            _in_a_row(activation),
            self.kernel,
            *self._betas(pose),
            self.fields(pose),
            self._options(pose),
            self._added(pose),
            compiled,
        )

    def _options(self, pose):
        """Return the `EMOptions` with lambda divided by the usual mass."""
        temperature = self.options.inverse_temperature / self._usual_mass(pose)
        return dataclasses.replace(self.options, inverse_temperature=temperature)

    def _usual_mass(self, pose):
        """Return the mean mass of a parent with all children active; 1 without `normalize_mass`."""
        if not self.normalize_mass or self.routing != "em":
            return 1.0
        fields = self.fields(pose)
        children = int(np.count_nonzero(fields.parents)) * pose.shape[3]
        parents = len(fields.children) * (self.types if self.options.compete == "all" else 1)
        return children / parents

    def _betas(self, pose):
        # Only the costs are divided by the mass, so undo the division of lambda for beta_a.
        scale = self.activation_scale * self._usual_mass(pose)
        return at_least_float32(self.beta_u), scale * at_least_float32(self.beta_a)

    def _added(self, pose):
        """Return an array (K, P P) to add to the votes of each position, or None."""
        return None

    def votes(self, pose):
        """Return the votes V_ij = M_i W_ij (B, h w, K, I, J, P P) of poses (B, H, W, I, P, P)."""
        seen = self.fields(pose).gather(_in_a_row(at_least_float32(pose)))
        kernel = at_least_float32(self.kernel)
        maps = "kijno" if len(kernel.shape) == 5 else "ijno"
        # Images and places are one axis: LiteRT knows arrays of up to six.
        sizes = ops.shape(seen)
        rows = ops.reshape(seen, (-1, *seen.shape[2:]))
        votes = ops.einsum(f"xkimn,{maps}->xkijmo", rows, kernel)
        votes = ops.reshape(votes, (*sizes[:4], kernel.shape[-3], sizes[4] * sizes[5]))
        added = self._added(pose)
        return votes if added is None else votes + ops.cast(added[:, None, None], votes.dtype)

    def fields(self, pose):
        """Return the cached `ReceptiveFields` for poses (B, H, W, I, P, P)."""
        grid = tuple(pose.shape[1:3])
        if grid not in self._known:
            self._known[grid] = self.make_fields(*grid)
        return self._known[grid]

    def _maps(self, height, width):
        """Return the window positions with their own maps, a shape; () if they share maps."""
        return self.make_fields(height, width).children.shape[1:]

    def _checked(self, input_shape):
        is_pair = isinstance(input_shape, (tuple, list)) and len(input_shape) == 2
        pose, activation = map(tuple, input_shape) if is_pair else ((), ())
        known = len(pose) == 6 and None not in pose[1:] and pose[1:4] == activation[1:]
        batches = {*pose[:1], *activation[:1]} - {None}
        if not known or pose[4] != pose[5] or len(batches) > 1:
            raise ValueError(
                f"{type(self).__name__} needs poses (batch, height, width, types, size, size) and "
                "activations (batch, height, width, types), all sizes but the batch known. "
                f"Received: input_shape={input_shape}"
            )
        return pose, activation

    def compute_output_shape(self, input_shape):
        pose, _ = self._checked(input_shape)
        places = (pose[0], *self.make_fields(*pose[1:3]).shape, self.types)
        return (*places, *pose[4:]), places


def _in_a_row(x):
    """Reshape (B, H, W, ...) to (B, H W, ...)."""
    return ops.reshape(x, (-1, x.shape[1] * x.shape[2], *x.shape[3:]))


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class ConvEMCapsules(MatrixParents):
    """Convolutional matrix capsules: each parent routes a window of the capsules below.

    EM routing fits a Gaussian cluster to the votes `V_ij = M_i W_ij` for each parent. The presets
    do not use these defaults, see the documentation of matrix capsules.

    Args:
        types: int, J, capsules at each position.
        kernel_size: int, height and width of a window, in positions.
        strides: int, positions between windows.
        routing_iterations, schedule, inverse_temperature, compete, damping, variance_floor,
            assignment_temperature: See `functions.EMOptions`.
        normalize_mass: bool, divide the mass in the costs by its mean with all children active.
            Then the inverse temperature has the same effect in layers of any size.
        activation_scale: float, factor on beta_a. A large factor speeds up learning.
        kernel_initializer, kernel_regularizer: For the maps W. None is a truncated normal
            distribution of standard deviation 0.3.
        cost_initializer, activation_initializer: For beta_u and beta_a.
        implementation: `"fused"`, a few images at a time; `"xla"`, the same with XLA in
            training; or `"reference"`, the readable form. The results agree.
        routing: `"em"`, or `"variational"`, see `functions.variational_routing`. The latter uses
            only `routing_iterations`. It normalizes input poses and output log-odds over the
            batch.

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

    def __init__(self, types: int, kernel_size: int = 3, strides: int = 1, **kwargs: Any) -> None:
        super().__init__(types, **kwargs)
        self.kernel_size = whole_number("kernel_size", kernel_size)
        self.strides = whole_number("strides", strides)

    def make_fields(self, height, width):
        return ReceptiveFields(height, width, self.kernel_size, self.strides)


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
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

    def __init__(
        self, types: int, shared_weights: bool = True, coordinates: bool = True, **kwargs: Any
    ) -> None:
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
