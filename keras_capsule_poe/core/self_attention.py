"""Self-attention routing between two layers of capsules, over any maps."""

import math
from typing import Any

from keras import ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.numerics import at_least_float32
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

        def step(x):
            x = maps.lay_inputs(x)
            c = self.coefficients(maps.equal_up(x), x)[1]
            return [maps.unlay_pairs(c), maps.unlay_outputs(maps.up(c, x))], []

        x = ops.cast(at_least_float32(x), maps.kernel.dtype)
        shapes = [(maps.inputs, maps.outputs), maps.output_shape]
        return Routing(*over_images(step, [x], maps.images_at_once(), shapes, [])[0])

    def coefficients(self, sums, x):
        """Return p and c as pairs, from s and inputs in the layout of the maps."""
        share = self.maps.softmax(self._agreement(sums * self._share, x), "outputs", 1.0)
        if self.bias is None:
            return share, share
        bias = self.maps.lay_pairs(self.bias[None])
        if isinstance(share, list):
            return share, [block + more for block, more in zip(share, bias)]
        return share, share + bias

    def _agreement(self, y, x):
        agreement = self.maps.agreements("dot")
        return agreement.of(agreement.measure(x), y)
