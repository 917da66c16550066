"""Fused dynamic routing over blocks, with an explicit gradient."""

from functools import partial
from typing import Any

from keras import ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.fused.blocks import BlockMaps
from keras_capsule_poe.core.fused.shared_maps import SharedMaps
from keras_capsule_poe.core.numerics import at_least_float32, custom_gradient, length, over_length
from keras_capsule_poe.core.routing import Numbers, Router, Routing, RoutingOptions, numbers_of
from keras_capsule_poe.core.sharding import over_images
from keras_capsule_poe.core.units import CAPSULES


def route(
    x: Tensor,
    kernel: Tensor,
    bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
    shared: bool = False,
    **options: Any,
) -> Routing:
    """Dynamic routing, `c = routing(x, W)`, without storing the votes.

    The result equals that of `Router(EinsumMaps(kernel), RoutingOptions(**options), bias)`; see
    `Router` for the equations. It takes a few images at a time, which bounds the memory. The
    result is differentiable once in all tensors, the agreement scale, the activation prior weight
    and the coefficient sum, through all iterations. The gradient recomputes the coefficients.

    Args:
        x: Tensor (B, I, D), input capsules.
        kernel: Tensor (I, J, E, D), prediction maps W_ij.
        bias: Tensor (J,), added to the logits of each output capsule; or None.
        hidden_bias: Tensor (J, E), added to the pre-activations; or None.
        shared: bool, whether all inputs share the maps of a kernel (1, J, E, D). The number of
            inputs can then vary.
        **options: Fields of `RoutingOptions`.

    Returns:
        `Routing(coefficients, z)`, of shapes (B, I, J) and (B, J, E).

    Raises:
        ValueError: If an option is invalid.

    Example:

    >>> c, z = route(ops.ones((2, 6, 4)), ops.ones((6, 5, 3, 4)), routing_iterations=2)
    >>> c.shape, z.shape
    (TensorShape([2, 6, 5]), TensorShape([2, 5, 3]))

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Procedure 1
    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1
    """
    given = RoutingOptions(**options)
    return route_blocks(x, kernel, given, bias, hidden_bias=hidden_bias, shared=shared)


def route_blocks(x, kernel, options, bias=None, units=CAPSULES, hidden_bias=None, shared=False):
    """Run `route` with given `RoutingOptions`, for outputs of any units."""
    kernel = at_least_float32(kernel)
    x = ops.cast(at_least_float32(x), kernel.dtype)
    inputs = ops.shape(x)[1]
    form = partial(SharedMaps, inputs=inputs) if shared else BlockMaps
    more = [] if hidden_bias is None else [ops.cast(hidden_bias, kernel.dtype)]

    @custom_gradient
    def routed(x, kernel, *arrays):
        numbers, own = Numbers(*arrays[:4]), arrays[4] if more else None
        router = BlockRouter(form(kernel), options, bias, numbers, units, own)
        c, *steps = router.all_images(x)

        def gradient(in_c, in_z):
            return router.gradient(x, steps, in_c, in_z)

        return (c, steps[-1]), gradient

    return Routing(*routed(x, kernel, *numbers_of(kernel, options, bias, inputs), *more))


class BlockRouter(Router):
    """`Router` over `BlockMaps` or `SharedMaps` with an explicit gradient."""

    def gradient(self, x, steps, in_c, in_z):
        """Return the gradients in x, the kernel, the `Numbers` and, if any, the hidden bias."""
        maps, bias = self.maps, self._numbers.bias
        own = [] if self.hidden_bias is None else [self.hidden_bias.shape]

        def of_slice(x, in_c, in_z, *steps):
            steps = [maps.lay_outputs(z) for z in steps]
            in_c, in_z = maps.lay_pairs(in_c), maps.lay_outputs(in_z)
            in_x, in_maps, *more = self._slice_gradient(maps.lay_inputs(x), steps, in_c, in_z)
            return [maps.unlay_inputs(in_x)], [*more, *in_maps]

        lengths = self._agreement.sums_shape if self._updates else ()
        shapes = [lengths, (), (), bias.shape, (), *own, *maps.map_shapes]
        at_once, arrays = maps.images_at_once(held=3), [x, in_c, in_z, *steps]
        (in_x,), sums = over_images(of_slice, arrays, at_once, [ops.shape(x)[1:]], shapes)
        last = 5 + len(own)
        length_sums, in_numbers, in_maps = sums[0], sums[1:last], sums[last:]
        in_kernel = maps.unlay_maps(in_maps)
        if self._is_cosine and self._updates:
            in_kernel = in_kernel + self._agreement.gradient_of_sums(length_sums)
        return [in_x, in_kernel, *in_numbers]

    def _slice_gradient(self, x, steps, in_c, in_z):
        """Return the gradient in x of a slice, and the sums for the other gradients."""
        maps, axis = self.maps, self._axis
        agreement_scale, prior, bias, scale = self._numbers
        images, softmax_over = maps.images_axis, self._options.softmax_over
        zero = ops.zeros((), dtype=x.dtype)
        in_bias, in_agreement_scale, in_prior, in_scale = ops.zeros_like(bias), zero, zero, zero
        in_x = in_measured = in_target = in_own = 0.0
        in_maps = products = None
        if self._updates:
            measured = self._agreement.measure(x)
            slopes = self._agreement.measure_slopes(measured)
        target, moves = 0.0, []
        for z in steps[:-1]:
            target, towards = self._moved(target, z)
            moves.append((z, target, towards))
        for z, target, towards in reversed(moves):
            agreement = self._agreement.of(measured, target)
            _, c = self._coefficients(agreement, z)
            # Gradient through the next pre-activation, a + sum_i c W x.
            in_own = in_own + ops.sum(in_z, axis=images, keepdims=True)
            in_x = in_x + maps.down(c, in_z)
            in_maps = _added(in_maps, maps.correlation(c, in_z, x))
            in_c = _added(in_c, maps.agreement(in_z, x))
            # Gradient through the softmax.
            parts = [block * gradient for block, gradient in zip(c, in_c)]
            means = [total / scale for total in maps.totals(parts, softmax_over)]
            in_logits = [part - block * mean for part, block, mean in zip(parts, c, means)]
            in_scale = in_scale + sum(ops.sum(part) for part in parts) / scale
            in_c = None
            # Gradient through the agreement.
            more_target, more_measured, more_maps = self._agreement.gradient(
                slopes, target, in_logits
            )
            in_target = more_target if self._is_replaced else in_target + more_target
            in_measured = in_measured + more_measured
            in_maps = _added(in_maps, more_maps)
            parts = [block * gradient for block, gradient in zip(agreement, in_logits)]
            products = _added(products, parts)
            # Gradient through the direction of z and through the offset.
            in_agreement_scale = in_agreement_scale + ops.sum(in_target * towards)
            in_z = self._direction_gradient(z, agreement_scale * in_target)
            if self._is_offset:
                in_offset = maps.sum_over_inputs(in_logits)
                in_bias = in_bias + ops.sum(in_offset, axis=images)
                in_prior = in_prior + ops.sum(in_offset * self._units.log_odds(z, axis))
                in_z = in_z + self._units.log_odds_gradient(z, prior * in_offset, axis)
        length_sums = zero
        if self._is_cosine and self._updates:
            more, length_sums = self._agreement.gradient_of_lengths(slopes, products)
            in_x = in_x + (in_measured + more) / measured.size
        elif self._updates:
            in_x = in_x + in_measured
        # Gradient through the first pre-activation, a_j + share_j scale sum_i W x.
        in_own = in_own + ops.sum(in_z, axis=images, keepdims=True)
        share = scale * self._share
        in_equal = in_z * ops.expand_dims(share, axis)
        in_x = in_x + maps.equal_down(in_equal)
        in_maps = _added(in_maps, maps.equal_correlation(in_equal, x))
        own = 0.0 if self._laid_bias is None else self._laid_bias
        part = ops.sum(ops.sum(in_z * (steps[0] - own), axis=axis), axis=images)
        if in_c is not None:
            in_share = ops.sum(maps.sum_over_inputs(in_c), axis=images)
            part = part + in_share * ops.reshape(share, (-1,))
        in_scale = in_scale + ops.sum(part) / scale
        if self._is_offset:
            in_bias = in_bias + part - ops.reshape(self._share, (-1,)) * ops.sum(part)
        more = [] if self._laid_bias is None else [maps.unlay_outputs(in_own)[0]]
        return in_x, in_maps, length_sums, in_agreement_scale, in_prior, in_bias, in_scale, *more

    def _direction_gradient(self, z, upstream):
        if self._options.agreement == "dot":
            return self._units.mean_gradient(z, upstream, self._axis)
        n = length(z, self._axis, keepdims=True)
        unit = over_length(z, n)
        along = unit * ops.sum(unit * upstream, axis=self._axis, keepdims=True)
        return over_length(upstream - along, n)


def _added(blocks, more):
    return [a + b for a, b in zip(blocks, more)] if blocks else more
