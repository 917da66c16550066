"""Base layer of matrix capsules: parents of windows of children."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.checks import one_of, real_number, whole_number
from keras_capsule_poe.functions.em_routing import EMOptions, em_steps
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.streamed.em import route_matrices
from keras_capsule_poe.functions.variational_routing import VariationalOptions, variational_steps

IMPLEMENTATIONS = ("streamed", "compiled", "plain")


class MatrixParents(keras.layers.Layer):
    """Base of matrix capsule layers. Subclasses define the windows in `make_fields`."""

    def __init__(
        self,
        types,
        iterations=3,
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
        implementation="streamed",
        routing="em",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.routing = one_of("routing", routing, ("em", "variational"))
        self.implementation = one_of("implementation", implementation, IMPLEMENTATIONS)
        self.types = whole_number("types", types)
        self.options = EMOptions(
            iterations,
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
        if self.implementation == "plain" or self.routing == "variational":
            pose, activation, _ = self.route(inputs, training)
        else:
            compiled = self.implementation == "compiled" and training
            pose, activation = self._streamed(*inputs, compiled)
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
        return variational_steps(votes, *more, VariationalOptions(self.options.iterations))

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

    def _streamed(self, pose, activation, compiled):
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
        votes = ops.einsum(f"bpkimn,{maps}->bpkijmo", seen, kernel)
        votes = ops.reshape(votes, (*ops.shape(votes)[:-2], pose.shape[-2] * pose.shape[-1]))
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

    def get_config(self):
        return {
            **super().get_config(),
            "types": self.types,
            **dataclasses.asdict(self.options),
            "normalize_mass": self.normalize_mass,
            "activation_scale": self.activation_scale,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "cost_initializer": keras.initializers.serialize(self.cost_initializer),
            "activation_initializer": keras.initializers.serialize(self.activation_initializer),
            "implementation": self.implementation,
            "routing": self.routing,
        }


def _in_a_row(x):
    """Reshape (B, H, W, ...) to (B, H W, ...)."""
    return ops.reshape(x, (-1, x.shape[1] * x.shape[2], *x.shape[3:]))
