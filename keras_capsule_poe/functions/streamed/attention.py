"""Self-attention routing over blocks, a few images at a time, with its gradient by hand.

Letters, layouts and blocks as in `blocks`; the steps as in `self_attention`.
"""

from keras import ops

from keras_capsule_poe.functions.gradients import custom_gradient
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.routing import Routing
from keras_capsule_poe.functions.self_attention import SelfAttention
from keras_capsule_poe.functions.slices import over_images
from keras_capsule_poe.functions.streamed.blocks import BlockMaps


def attend(x, kernel, bias=None):
    """Self-attention routing in one pass; votes are not stored.

    Differentiable in all arguments, not twice; the gradient recomputes instead of storing.
    `SelfAttention(EinsumMaps(kernel), bias).route(x)` is the readable form and gives the same
    numbers.

    Args:
        x: Tensor (B, I, D), input capsules.
        kernel: Tensor (I, J, E, D), prediction maps W_ij.
        bias: Tensor (I, J), added to the coefficients; or None.

    Returns:
        `Routing(coefficients, z)`, of shapes (B, I, J) and (B, J, E).

    Examples:

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
    """A `SelfAttention` over `BlockMaps` that knows its gradient."""

    def gradient(self, x, in_c, in_z):
        """Gradients in x, the kernel and the bias.

        Args:
            x: Tensor (B, I, D).
            in_c, in_z: Gradients in the coefficients (B, I, J) and the collectives (B, J, E).

        Returns:
            List of tensors of the shapes of x, the kernel and the bias.
        """
        maps = self.maps

        def step(x, in_c, in_z):
            x, in_c, in_z = maps.lay_inputs(x), maps.lay_pairs(in_c), maps.lay_outputs(in_z)
            in_x, in_bias, in_maps = self._slice_gradient(x, in_c, in_z)
            return [maps.unlay_inputs(in_x)], [in_bias, *in_maps]

        at_once, shapes = maps.images_at_once(held=3), [self.bias.shape, *maps.map_shapes]
        (in_x,), sums = over_images(step, [x, in_c, in_z], at_once, [ops.shape(x)[1:]], shapes)
        return [in_x, maps.unlay_maps(sums[1:]), sums[0]]

    def _slice_gradient(self, x, in_c, in_z):
        maps = self.maps
        sums = maps.equal_up(x)
        share, c = self.coefficients(sums, x)
        # The collectives.
        in_x, in_maps = maps.down(c, in_z), maps.correlation(c, in_z, x)
        in_c = [a + b for a, b in zip(in_c, maps.agreement(in_z, x))]
        in_bias = ops.sum(maps.unlay_pairs(in_c), axis=0)
        # The softmax, and what it is taken of.
        parts = [p * gradient for p, gradient in zip(share, in_c)]
        means = maps.totals(parts, "outputs")
        in_logits = [self._share * (part - p * m) for part, p, m in zip(parts, share, means)]
        in_x = in_x + maps.down(in_logits, sums)
        # The sums of all votes.
        in_sums = maps.up(in_logits, x)
        in_x = in_x + maps.equal_down(in_sums)
        more = zip(maps.correlation(in_logits, sums, x), maps.equal_correlation(in_sums, x))
        in_maps = [a + b + c for a, (b, c) in zip(in_maps, more)]
        return in_x, in_bias, in_maps
