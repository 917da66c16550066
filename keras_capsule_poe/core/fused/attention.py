"""Self-attention routing: the readable form, and a fused one with an explicit gradient."""

import math
from typing import Any

from keras import ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.fused.blocks import BlockMaps
from keras_capsule_poe.core.numerics import at_least_float32, custom_gradient
from keras_capsule_poe.core.routing import Routing
from keras_capsule_poe.core.sharding import over_images


class SelfAttention:
    """Self-attention routing, in one step without iterations.

        s_j  = sum_k W_kj x_k
        p_ij = softmax_j(W_ij x_i . s_j / sqrt(E))
        c_ij = p_ij + b_ij
        z_j  = sum_i c_ij W_ij x_i

    The logit sums the inner products of one vote with all votes for the same output.

    Args:
        maps: Maps such as `EinsumMaps`.
        bias: Tensor (I, J), b, added to the coefficients; or None.

    Example:

    >>> from keras_capsule_poe.functions import EinsumMaps
    >>> attention = SelfAttention(EinsumMaps(ops.ones((6, 5, 3, 4))))
    >>> attention.route(ops.ones((2, 6, 4))).z.shape
    TensorShape([2, 5, 3])

    Reference:

    - [Mazzia et al., 2021](https://doi.org/10.1038/s41598-021-93977-0), Equations 4 to 6
    """

    def __init__(self, maps: Any, bias: Tensor | None = None) -> None:
        self.maps = maps
        self.bias = None if bias is None else ops.cast(at_least_float32(bias), maps.kernel.dtype)
        self._share = 1 / math.sqrt(maps.output_shape[1])

    def route(self, x):
        """Return the `Routing` of inputs (B, I, D): c (B, I, J) and z (B, J, E)."""
        maps = self.maps

        def of_slice(x):
            x = maps.lay_inputs(x)
            c = self.coefficients(maps.equal_up(x), x)[1]
            return [maps.unlay_pairs(c), maps.unlay_outputs(maps.up(c, x))], []

        x = ops.cast(at_least_float32(x), maps.kernel.dtype)
        shapes = [(maps.inputs, maps.outputs), maps.output_shape]
        return Routing(*over_images(of_slice, [x], maps.images_at_once(), shapes, [])[0])

    def coefficients(self, sums, x):
        """Return p and c as pairs, from s and inputs in the layout of the maps."""
        share = self.maps.softmax(self.maps.agreement(sums * self._share, x), "outputs", 1.0)
        if self.bias is None:
            return share, share
        bias = self.maps.lay_pairs(self.bias[None])
        if isinstance(share, list):
            return share, [block + more for block, more in zip(share, bias)]
        return share, share + bias


def attend(x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Routing:
    """Self-attention routing, without storing the votes.

    The result equals that of `SelfAttention(EinsumMaps(kernel), bias).route(x)`. It is
    differentiable once in all arguments. The gradient recomputes the forward step.

    Args:
        x: Tensor (B, I, D), input capsules.
        kernel: Tensor (I, J, E, D), prediction maps W_ij.
        bias: Tensor (I, J), added to the coefficients; or None.

    Returns:
        `Routing(coefficients, z)`, of shapes (B, I, J) and (B, J, E).

    Example:

    >>> c, z = attend(ops.ones((2, 6, 4)), ops.ones((6, 5, 3, 4)))
    >>> c.shape, z.shape
    (TensorShape([2, 6, 5]), TensorShape([2, 5, 3]))

    Reference:

    - [Mazzia et al., 2021](https://doi.org/10.1038/s41598-021-93977-0), Equations 4 to 6
    """
    kernel = at_least_float32(kernel)
    x = ops.cast(at_least_float32(x), kernel.dtype)
    bias = ops.zeros(kernel.shape[:2]) if bias is None else bias

    @custom_gradient
    def attended(x, kernel, bias):
        attention = BlockAttention(BlockMaps(kernel), bias)

        def gradient(in_c, in_z):
            return attention.gradient(x, in_c, in_z)

        return tuple(attention.route(x)), gradient

    return Routing(*attended(x, kernel, ops.cast(bias, kernel.dtype)))


class BlockAttention(SelfAttention):
    """`SelfAttention` over `BlockMaps` with an explicit gradient."""

    def gradient(self, x, in_c, in_z):
        """Return the gradients in x, the kernel and the bias, given those in c and z."""
        maps = self.maps

        def of_slice(x, in_c, in_z):
            x, in_c, in_z = maps.lay_inputs(x), maps.lay_pairs(in_c), maps.lay_outputs(in_z)
            in_x, in_bias, in_maps = self._slice_gradient(x, in_c, in_z)
            return [maps.unlay_inputs(in_x)], [in_bias, *in_maps]

        at_once, shapes = maps.images_at_once(held=3), [self.bias.shape, *maps.map_shapes]
        (in_x,), sums = over_images(of_slice, [x, in_c, in_z], at_once, [ops.shape(x)[1:]], shapes)
        return [in_x, maps.unlay_maps(sums[1:]), sums[0]]

    def _slice_gradient(self, x, in_c, in_z):
        maps = self.maps
        sums = maps.equal_up(x)
        share, c = self.coefficients(sums, x)
        # Gradient through the pre-activations.
        in_x, in_maps = maps.down(c, in_z), maps.correlation(c, in_z, x)
        in_c = [a + b for a, b in zip(in_c, maps.agreement(in_z, x))]
        in_bias = ops.sum(maps.unlay_pairs(in_c), axis=0)
        # Gradient through the softmax and its logits.
        parts = [p * gradient for p, gradient in zip(share, in_c)]
        means = maps.totals(parts, "outputs")
        in_logits = [self._share * (part - p * m) for part, p, m in zip(parts, share, means)]
        in_x = in_x + maps.down(in_logits, sums)
        # Gradient through the sums of all votes.
        in_sums = maps.up(in_logits, x)
        in_x = in_x + maps.equal_down(in_sums)
        more = zip(maps.correlation(in_logits, sums, x), maps.equal_correlation(in_sums, x))
        in_maps = [a + b + c for a, (b, c) in zip(in_maps, more)]
        return in_x, in_bias, in_maps
