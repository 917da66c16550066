"""Routing by agreement for a few images at a time, in blocks, and its gradient by hand.

Letters, layouts and blocks as in `blocks`. With g(z) the direction of z (or its squash, for dot
agreement), T the temperature, b the activation prior and A the agreement with the votes:

    z_0 = sum_i c_ij W_ij x_i                         c the same for all i
    p_t = p_{t-1} + T g(z_{t-1})
    c_t = scale softmax(A(p_t) + b log|z_{t-1}|^2 + bias),    z_t = sum_i c_t,ij W_ij x_i
"""

from collections import namedtuple
from functools import reduce

from keras import ops

from keras_capsule_poe.functions.energy import log_odds
from keras_capsule_poe.functions.norms import direction, folded, length
from keras_capsule_poe.functions.squash import squash
from keras_capsule_poe.functions.streamed.blocks import over_images
from keras_capsule_poe.functions.streamed.votes import Agreement

Numbers = namedtuple("Numbers", ["temperature", "activation_prior", "bias", "scale"])


class Router:
    """Routing with one set of maps and options.

    Args:
        pairs: `PairSums` of the maps.
        numbers: `Numbers`, tensors: the bias (J,), the others scalars.
        iterations, normalize, kind: See `routing.route`.
        is_offset: Whether the prior and the bias are added to the logits.
    """

    def __init__(self, pairs, numbers, iterations, normalize, kind, is_offset):
        self._pairs = pairs
        self._numbers = numbers
        self._iterations = iterations
        self._over_inputs = normalize == "inputs"
        self._is_cosine = kind == "cosine"
        self._is_offset = is_offset
        self._agreement = Agreement(pairs, kind)
        self._axis = pairs.output_axis
        if self._over_inputs:
            share = ops.ones_like(numbers.bias) / pairs.inputs
        else:
            share = ops.exp(numbers.bias - ops.max(numbers.bias))
            share = share / ops.sum(share)
        self._share = pairs.lay_numbers(share)

    # Forward

    def all_images(self, x):
        """Coefficients (B, I, J) and the collectives z_0 to z_last, each (B, J, E)."""
        pairs = self._pairs

        def step(x):
            c, steps = self.slice_of_images(pairs.lay_inputs(x))
            return [pairs.unlay_pairs(c), *(pairs.unlay_outputs(z) for z in steps)], []

        out_dim = pairs.few_dim if pairs.inputs_are_many else pairs.many_dim
        shapes = [(pairs.inputs, pairs.outputs)]
        shapes += [(pairs.outputs, out_dim)] * (self._iterations + 1)
        return over_images(step, [x], pairs.images_at_once(), shapes, [])[0]

    def slice_of_images(self, x):
        """Coefficients, as blocks, and the list of collectives, from inputs laid out."""
        scale = self._numbers.scale
        z = self._pairs.equal_collective(x) * ops.expand_dims(scale * self._share, self._axis)
        steps = [z]
        if self._iterations == 0:
            return self._equal_coefficients(x), steps
        measured, pull = self._agreement.measure(x), 0.0
        for _ in range(self._iterations):
            pull = pull + self._numbers.temperature * self._direction(z)
            c = self._coefficients(self._agreement.of(measured, pull), z)
            z = self._pairs.collective(c, x)
            steps.append(z)
        return c, steps

    def _direction(self, z):
        return direction(z, self._axis) if self._is_cosine else squash(z, self._axis)

    def _equal_coefficients(self, x):
        pairs = self._pairs
        images = ops.shape(x)[0 if pairs.inputs_are_many else 1]
        shape = (pairs.few, images, pairs.many)
        share = ops.expand_dims(self._numbers.scale * self._share, self._axis)
        return pairs.split(ops.broadcast_to(share, shape)[:, :, None])

    def _coefficients(self, logits, z):
        if self._is_offset:
            offset = self._numbers.activation_prior * log_odds(z, self._axis)
            offset = offset + self._pairs.lay_numbers(self._numbers.bias)
            offset = self._pairs.spread_numbers(offset)
            logits = [block + o for block, o in zip(logits, offset)]
        largest = self._reduce(logits, ops.max, ops.maximum)
        powers = [ops.exp(block - most) for block, most in zip(logits, largest)]
        totals = self._reduce(powers, ops.sum, ops.add)
        return [power * (self._numbers.scale / total) for power, total in zip(powers, totals)]

    def _reduce(self, blocks, within, between):
        """Sums, or maxima, over the axis of the softmax, as a list that fits the blocks."""
        if self._over_inputs == self._pairs.inputs_are_many:
            return [within(block, axis=3, keepdims=True) for block in blocks]
        whole = reduce(between, [within(block, axis=0, keepdims=True) for block in blocks])
        return [whole] * len(blocks)

    # Backward

    def gradient(self, x, steps, in_c, in_z):
        """Gradients in x, the kernel and the `Numbers`.

        Args:
            x: Tensor (B, I, D).
            steps: List of the collectives z_0 to z_last, (B, J, E), from `all_images`.
            in_c, in_z: Gradients in the coefficients (B, I, J) and in the last collectives.

        Returns:
            List of tensors of the shapes of x, the kernel and the `Numbers`.
        """
        pairs, bias = self._pairs, self._numbers.bias

        def step(x, in_c, in_z, *steps):
            steps = [pairs.lay_outputs(z) for z in steps]
            in_c, in_z = pairs.lay_pairs(in_c), pairs.lay_outputs(in_z)
            in_x, in_maps, *more = self._slice_gradient(pairs.lay_inputs(x), steps, in_c, in_z)
            return [pairs.unlay_inputs(in_x)], [*more, *in_maps]

        lengths = self._agreement.sums_shape if self._iterations else ()
        shapes = [lengths, (), (), bias.shape, (), *pairs.map_shapes]
        at_once, arrays = pairs.images_at_once(held=3), [x, in_c, in_z, *steps]
        (in_x,), sums = over_images(step, arrays, at_once, [x.shape[1:]], shapes)
        length_sums, in_numbers, in_maps = sums[0], sums[1:5], sums[5:]
        in_kernel = pairs.unlay_maps(in_maps)
        if self._is_cosine and self._iterations:
            in_kernel = in_kernel + self._agreement.gradient_of_sums(length_sums)
        return [in_x, in_kernel, *in_numbers]

    def _slice_gradient(self, x, steps, in_c, in_z):
        """For a few images: the gradient in x, and the sums that make those in all else."""
        pairs, axis = self._pairs, self._axis
        temperature, prior, bias, scale = self._numbers
        images = 1 if pairs.inputs_are_many else 0
        zero = ops.zeros((), dtype=x.dtype)
        in_bias, in_temperature, in_prior, in_scale = ops.zeros_like(bias), zero, zero, zero
        in_x = in_measured = in_pull = 0.0
        in_maps = products = None
        measured = self._agreement.measure(x)
        slopes = self._agreement.measure_slopes(measured)
        pulls = [0.0]
        for z in steps[:-1]:
            pulls.append(pulls[-1] + temperature * self._direction(z))
        for z, pull in reversed(list(zip(steps[:-1], pulls[1:]))):
            agreement = self._agreement.of(measured, pull)
            c = self._coefficients(agreement, z)
            # The next collective, sum_i c W x.
            in_x = in_x + pairs.backproject(c, in_z)
            in_maps = _added(in_maps, pairs.correlation(c, in_z, x))
            in_c = _added(in_c, pairs.agreement(in_z, x))
            # The softmax.
            parts = [block * gradient for block, gradient in zip(c, in_c)]
            means = [total / scale for total in self._reduce(parts, ops.sum, ops.add)]
            in_logits = [part - block * mean for part, block, mean in zip(parts, c, means)]
            in_scale = in_scale + sum(ops.sum(part) for part in parts) / scale
            in_c = None
            # The agreement.
            more_pull, more_measured, more_maps = self._agreement.gradient(slopes, pull, in_logits)
            in_pull, in_measured = in_pull + more_pull, in_measured + more_measured
            in_maps = _added(in_maps, more_maps)
            parts = [block * gradient for block, gradient in zip(agreement, in_logits)]
            products = _added(products, parts)
            # The directions of the earlier collectives; the offset.
            in_temperature = in_temperature + ops.sum(in_pull * self._direction(z))
            in_z = self._direction_gradient(z, temperature * in_pull)
            if self._is_offset:
                in_offset = pairs.sum_over_inputs(in_logits)
                in_bias = in_bias + ops.sum(in_offset, axis=images)
                in_prior = in_prior + ops.sum(in_offset * log_odds(z, axis))
                in_z = in_z + _log_odds_gradient(z, prior * in_offset, axis)
        length_sums = zero
        if self._is_cosine and self._iterations:
            more, length_sums = self._agreement.gradient_of_lengths(slopes, products)
            in_x = in_x + (in_measured + more) / measured.size
        elif self._iterations:
            in_x = in_x + in_measured
        # The first collective, share_j scale sum_i W x.
        share = scale * self._share
        in_equal = in_z * ops.expand_dims(share, axis)
        in_x = in_x + pairs.equal_backproject(in_equal)
        in_maps = _added(in_maps, pairs.equal_correlation(in_equal, x))
        part = ops.sum(ops.sum(in_z * steps[0], axis=axis), axis=images)
        if in_c is not None:
            in_share = ops.sum(pairs.sum_over_inputs(in_c), axis=images)
            part = part + in_share * ops.reshape(share, (-1,))
        in_scale = in_scale + ops.sum(part) / scale
        if self._is_offset:
            in_bias = in_bias + part - ops.reshape(self._share, (-1,)) * ops.sum(part)
        return in_x, in_maps, length_sums, in_temperature, in_prior, in_bias, in_scale

    def _direction_gradient(self, z, upstream):
        """Gradient of `_direction`."""
        n = length(z, self._axis, keepdims=True)
        unit = direction(z, self._axis)
        along = unit * ops.sum(unit * upstream, axis=self._axis, keepdims=True)
        if self._is_cosine:
            is_zero = ops.equal(n, 0)
            slope = (upstream - along) / ops.where(is_zero, ops.ones_like(n), n)
            return ops.where(is_zero, ops.zeros_like(slope), slope)
        # squash(z) = f(n) z with f = n/(1+n^2), which is the same at n and at 1/n.
        s = folded(n)
        growth = ops.sign(1 - n) * s * (1 - ops.square(s)) / ops.square(1 + ops.square(s))
        return s / (1 + ops.square(s)) * upstream + growth * along


def _added(blocks, more):
    return [a + b for a, b in zip(blocks, more)] if blocks else more


def _log_odds_gradient(z, upstream, axis):
    """Gradient of log|z|^2, zero at the zero vector."""
    n = length(z, axis, keepdims=True)
    slope = 2 * direction(z, axis) / ops.where(ops.equal(n, 0), ops.ones_like(n), n)
    return slope * ops.expand_dims(upstream, axis)
