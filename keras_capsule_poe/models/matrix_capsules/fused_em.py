"""Fused EM routing for slices of images, with an explicit gradient that recomputes the steps.

Notation: G windows, J parents, C = K I children, votes V (G, J, C, H), s = r a/mass (G, J, C).
The gradient in V is sum_t u_tjc (A_tjh + B_tjh V_jch), with a term t per M step (u = s) and per
E step (u the gradient in its logits). It thus reads the votes twice, not twice per iteration.
"""

from collections import namedtuple
from functools import partial

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.core.numerics import at_least_float32, at_once, custom_gradient, on_processor
from keras_capsule_poe.core.sharding import over_images
from keras_capsule_poe.models.matrix_capsules.em_routing import (
    TINY,
    activation_log_odds,
    first_assignment,
)

# On a CPU: numbers of votes per slice, which fit the cache, and slices that run in parallel.
AT_ONCE, TOGETHER = 500_000, 2

MStep = namedtuple("MStep", "assignment inverse mass shares raw mean variance log_odds")


def route_matrices(
    pose, activation, kernel, beta_u, beta_a, fields, options, added=None, compiled=False
):
    """Return poses (B, h w, J, P P) and activations (B, h w, J) from fused EM routing."""
    # pose (B, N, I, P, P), kernel (K, I, J, P, P) or shared (I, J, P, P), added (K, P P).
    kernel = at_least_float32(kernel)
    arrays = [ops.cast(x, kernel.dtype) for x in (pose, activation, kernel, beta_u, beta_a)]
    machine = _Machine(kernel.shape, fields, options, added, compiled)

    @custom_gradient
    def routed(pose, activation, kernel, beta_u, beta_a):
        found = machine.forward(pose, activation, kernel, beta_u, beta_a)

        def gradient(in_pose, in_activation):
            return machine.gradient(
                pose, activation, kernel, beta_u, beta_a, in_pose, in_activation
            )

        return tuple(found), gradient

    return routed(*arrays)


class _Machine:
    """Steps of EM routing for a slice of images, and their gradients."""

    def __init__(self, kernel_shape, fields, options, added, compiled):
        self.fields, self.options, self.added = fields, options, added
        over = _over_compiled if compiled else over_images
        self.over_images = partial(over, together=TOGETHER if on_processor() else 1)
        self.places, self.offsets = fields.children.shape
        self.inputs, self.outputs, self.size = kernel_shape[-4], kernel_shape[-3], kernel_shape[-1]
        self.children, self.numbers = self.offsets * self.inputs, self.size**2
        votes = self.places * self.children * self.outputs * self.numbers
        self.at_once = max(1, at_once(AT_ONCE) // votes)

    def forward(self, pose, activation, kernel, beta_u, beta_a):
        def step(pose, activation):
            votes, _, _ = self._votes(pose, kernel)
            *_, last = self._steps(votes, self._seen(activation), beta_u, beta_a)
            return [self._of_places(last.mean), self._of_places(ops.sigmoid(last.log_odds))], []

        shapes = [(self.places, self.outputs, self.numbers), (self.places, self.outputs)]
        found, _ = self.over_images(step, [pose, activation], self.at_once, shapes, [])
        return found

    def gradient(self, pose, activation, kernel, beta_u, beta_a, in_pose, in_activation):
        def step(pose, activation, in_pose, in_activation):
            votes, matrices, maps = self._votes(pose, kernel)
            seen = self._seen(activation)
            steps = self._steps(votes, seen, beta_u, beta_a)
            in_votes, in_seen, in_u, in_a = self._backward(
                votes, seen, steps, beta_u, self._of_groups(in_pose), self._of_groups(in_activation)
            )
            in_matrices, in_kernel = self._in_votes(in_votes, matrices, maps, kernel)
            in_matrices = ops.reshape(
                in_matrices,
                (-1, self.places, self.offsets, self.inputs, self.size, self.size),
            )
            in_seen = ops.reshape(in_seen, (-1, self.places, self.offsets, self.inputs))
            results = [self.fields.scatter(in_matrices), self.fields.scatter(in_seen)]
            return results, [in_kernel, in_u, in_a]

        arrays = [pose, activation, in_pose, in_activation]
        results = [pose.shape[1:], activation.shape[1:]]
        sums = [kernel.shape, beta_u.shape, beta_a.shape]
        found, added = self.over_images(step, arrays, self.at_once, results, sums)
        return [*found, *added]

    def _votes(self, pose, kernel):
        """Return V (G, J, C, H), the matrices (C, G P, P) and the maps (C, P, J P)."""
        seen = self.fields.gather(pose)
        shape = (-1, self.children, self.size, self.size)
        matrices = ops.transpose(ops.reshape(seen, shape), (1, 0, 2, 3))
        matrices = ops.reshape(matrices, (self.children, -1, self.size))
        shared = len(kernel.shape) == 4
        maps = ops.broadcast_to(kernel, (self.offsets, *kernel.shape)) if shared else kernel
        maps = ops.transpose(ops.reshape(maps, (self.children, *kernel.shape[-3:])), (0, 2, 1, 3))
        maps = ops.reshape(maps, (self.children, self.size, -1))
        votes = ops.matmul(matrices, maps)
        shape = (self.children, -1, self.size, self.outputs, self.size)
        votes = ops.transpose(ops.reshape(votes, shape), (1, 3, 0, 2, 4))
        votes = ops.reshape(votes, (-1, self.outputs, self.children, self.numbers))
        if self.added is not None:
            added = np.repeat(np.asarray(self.added), self.inputs, axis=0)
            votes = votes + ops.cast(added, votes.dtype)
        return votes, matrices, maps

    def _in_votes(self, in_votes, matrices, maps, kernel):
        """Return the gradients in the matrices (G, C, P, P) and in the kernel."""
        shape = (-1, self.outputs, self.children, self.size, self.size)
        upstream = ops.transpose(ops.reshape(in_votes, shape), (2, 0, 3, 1, 4))
        upstream = ops.reshape(upstream, (self.children, -1, self.outputs * self.size))
        in_matrices = ops.matmul(upstream, ops.transpose(maps, (0, 2, 1)))
        in_matrices = ops.reshape(in_matrices, (self.children, -1, self.size, self.size))
        in_maps = ops.matmul(ops.transpose(matrices, (0, 2, 1)), upstream)
        shape = (self.offsets, self.inputs, self.size, self.outputs, self.size)
        in_maps = ops.transpose(ops.reshape(in_maps, shape), (0, 1, 3, 2, 4))
        in_kernel = ops.sum(in_maps, axis=0) if len(kernel.shape) == 4 else in_maps
        return ops.transpose(in_matrices, (1, 0, 2, 3)), in_kernel

    def _steps(self, votes, seen, beta_u, beta_a):
        """Return an `MStep` for each iteration, given the activations `seen` (G, C)."""
        first = first_assignment(self.fields, self.inputs, self.outputs, self.options.compete)
        none = self._slots(ops.zeros_like(votes[..., 0]))
        r = self._of_slots(none + ops.cast(first, votes.dtype))
        steps, mean = [], 0.0
        for iteration in range(self.options.routing_iterations):
            if iteration:
                r = self._e_step(steps[-1], votes)
            weights = r * seen[:, None]
            mass = ops.sum(weights, axis=-1)
            inverse = 1 / ops.maximum(mass, TINY)
            shares = weights * inverse[..., None]
            raw, d = _down(shares, votes), self.options.damping
            mean = (1 - d) * raw + d * mean
            variance = _down(shares, _squared_gap(votes, mean)) + self.options.variance_floor
            cost = (beta_u[:, None] + ops.log(variance) / 2) * mass[..., None]
            heat = self.options.inverse_temperature_at(iteration)
            log_odds = activation_log_odds(cost, beta_a, heat)
            steps.append(MStep(r, inverse, mass, shares, raw, mean, variance, log_odds))
        return steps

    def _e_step(self, last, votes):
        """Return the assignment probabilities r (G, J, C) for the last M step."""
        heat = self.options.assignment_temperature
        distance = _along(_squared_gap(votes, last.mean), 1 / (2 * heat * last.variance))
        volume = ops.sum(ops.log(2 * np.pi * last.variance), axis=-1)
        constant = (ops.log_sigmoid(last.log_odds) - volume / 2) / heat
        logits = self._slots(constant[..., None] - distance)
        return self._of_slots(self.fields.compete(logits, self.options.compete))

    def _backward(self, votes, seen, steps, beta_u, in_mean, in_activation):
        """Return the gradients in the votes, the activations (G, C), beta_u and beta_a."""
        last = ops.sigmoid(steps[-1].log_odds)
        in_log_odds = in_activation * last * (1 - last)
        in_seen = in_u = in_a = 0.0
        in_logits, terms = None, []
        for iteration in reversed(range(len(steps))):
            step = steps[iteration]
            squares = _squared_gap(votes, step.mean)
            in_variance = 0.0
            if in_logits is not None:
                # Logits of the next E step: log sigmoid(o) - sum_h [gap^2 / var + ln var] / 2.
                total = ops.sum(in_logits, axis=-1)
                in_log_odds = total * ops.sigmoid(-step.log_odds)
                precision = 1 / step.variance
                in_squares = _down(in_logits, squares) * precision - total[..., None]
                in_variance = in_squares * precision / 2
                away = _down(in_logits, votes) - step.mean * total[..., None]
                in_mean = in_mean + away * precision
                terms.append((in_logits, step.mean * precision, -precision))
            heat = self.options.inverse_temperature_at(iteration)
            in_cost = -heat * in_log_odds
            logs = beta_u[:, None] + ops.log(step.variance) / 2
            in_a = in_a + heat * ops.sum(in_log_odds, axis=0)
            in_u = in_u + self.numbers * ops.sum(in_cost * step.mass, axis=0)
            in_mass = in_cost * ops.sum(logs, axis=-1)
            in_variance = in_variance + (in_cost * step.mass)[..., None] / (2 * step.variance)
            # The variance is around the damped mean, which differs from the weighted mean.
            whole = ops.sum(step.shares, axis=-1)[..., None]
            in_mean = in_mean - 2 * in_variance * (step.raw - step.mean * whole)
            in_raw = (1 - self.options.damping) * in_mean
            terms.append((step.shares, in_raw - 2 * step.mean * in_variance, 2 * in_variance))
            in_shares = _along(votes, in_raw) + _along(squares, in_variance)
            inside = ops.cast(step.mass > TINY, votes.dtype) * step.inverse
            in_mass = in_mass - inside * ops.sum(in_shares * step.shares, axis=-1)
            in_weights = in_shares * step.inverse[..., None] + in_mass[..., None]
            in_seen = in_seen + ops.sum(in_weights * step.assignment, axis=1)
            in_mean, in_log_odds = self.options.damping * in_mean, None
            if iteration:
                counted = seen / self.options.assignment_temperature
                in_logits = self._in_competition(step.assignment, in_weights * counted[:, None])
        return _in_votes(votes, terms), in_seen, in_u, in_a

    def _in_competition(self, r, upstream):
        """Return the gradient r (dr - sum r dr) in the logits of r."""
        parts = self._slots(r * upstream)
        total = self.fields.total(parts, self.options.compete)
        return self._of_slots(parts - self._slots(r) * total)

    def _seen(self, activation):
        return ops.reshape(self.fields.gather(activation), (-1, self.children))

    def _of_places(self, x):
        """Reshape (G, ...) to (B, places, ...)."""
        return ops.reshape(x, (-1, self.places, *x.shape[1:]))

    def _of_groups(self, x):
        return ops.reshape(x, (-1, *x.shape[2:]))

    def _slots(self, x):
        """Reshape (G, J, C) to (B, places, offsets, I, J)."""
        x = ops.transpose(x, (0, 2, 1))
        return ops.reshape(x, (-1, self.places, self.offsets, self.inputs, self.outputs))

    def _of_slots(self, x):
        return ops.transpose(ops.reshape(x, (-1, self.children, self.outputs)), (0, 2, 1))


def _over_compiled(step, *args, **kwargs):
    """Run `over_images` with the step compiled by XLA in TensorFlow's graphs."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            step = tf.function(step, autograph=False, jit_compile=True)
    return over_images(step, *args, **kwargs)


def _in_votes(votes, terms):
    """Return sum_t u_t (A_t + B_t V)."""
    u = ops.stack([u for u, _, _ in terms], axis=-1)
    constant, slope = (ops.stack(parts, axis=2) for parts in list(zip(*terms))[1:])
    return ops.matmul(u, constant) + votes * ops.matmul(u, slope)


def _down(u, votes):
    """Return sum_c u_jc V_jch, of shape (G, J, H)."""
    return ops.matmul(u[:, :, None], votes)[:, :, 0]


def _along(votes, x):
    """Return sum_h V_jch x_jh, of shape (G, J, C)."""
    return ops.matmul(votes, x[..., None])[..., 0]


def _squared_gap(votes, mean):
    """Return (V - mean)^2, in one operation if the backend has one."""
    mean = mean[:, :, None]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.math.squared_difference(votes, mean)
    return ops.square(votes - mean)
