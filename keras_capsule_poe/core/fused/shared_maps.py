"""Sums over all pairs of capsules of two layers whose inputs share their maps W_j.

The maps are applied after or before the sum: sum_i c_ij W_j x_i = W_j (sum_i c_ij x_i). A pair
thus needs a single number; pairs are a list of one block (B, J, I).
"""

from keras import ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.fused.blocks import Lengths
from keras_capsule_poe.core.maps import Identity
from keras_capsule_poe.core.numerics import BLOCK, at_least_float32, at_once, length

# Maximum number of groups of outputs whose votes are computed at once, for their lengths.
_MOST_GROUPS = 32


class SharedAgreement:
    """Agreement y_j . W_j x_i, or y_j . W_j x_i/|W_j x_i| for `kind="cosine"`."""

    def __init__(self, maps, kind):
        self._maps = maps
        self._is_cosine = kind == "cosine"
        # Shape of the sums of `gradient_of_lengths`.
        self.sums_shape = maps.map_shapes[0] if self._is_cosine else ()

    def measure(self, x):
        """Return the `Lengths` of the votes, computed by groups of outputs."""
        if not self._is_cosine:
            return Lengths(x, None, None)
        sizes = [length(self._votes(x, group)) for group in self._maps.groups()]
        sizes = ops.concatenate(sizes, axis=1)
        is_zero = ops.equal(sizes, 0)
        inverse = ops.where(is_zero, 0.0, 1 / ops.where(is_zero, 1.0, sizes))
        return Lengths(x, ops.ones((), dtype=x.dtype), inverse)

    def measure_slopes(self, measured):
        """Return the same `Lengths`: zero votes have a zero inverse already."""
        return measured

    def of(self, measured, y):
        """Return the agreements of y, as one block (B, J, I)."""
        (block,) = self._maps.agreement(y, measured.x)
        return [block * measured.inverse if self._is_cosine else block]

    def gradient(self, measured, y, upstream):
        """Return the gradients of `of` in y, x and the maps, for constant lengths."""
        if self._is_cosine:
            upstream = [upstream[0] * measured.inverse]
        maps, x = self._maps, measured.x
        return maps.up(upstream, x), maps.down(upstream, y), maps.correlation(upstream, y, x)

    def gradient_of_lengths(self, measured, products):
        """Return the gradients in x and the maps through the votes' lengths."""
        # cosine = agreement / |v|, so its gradient in v through |v| is -cosine v / |v|^2.
        # `products` is cosine times the gradient in it.
        weights = -products[0] * ops.square(measured.inverse)
        in_x, in_maps = 0.0, []
        for group in self._maps.groups():
            votes = weights[:, group, :, None] * self._votes(measured.x, group)
            in_x = in_x + ops.einsum("bgie,ged->bid", votes, self._maps.maps[group])
            in_maps.append(ops.einsum("bgie,bid->ged", votes, measured.x))
        return in_x, ops.concatenate(in_maps, axis=0)

    def gradient_of_sums(self, sums):
        """Return the gradient in the kernel (1, J, E, D) from sums over images."""
        return sums[None]

    def _votes(self, x, group):
        """Return the votes (B, group, I, E) of a group of outputs."""
        return ops.einsum("bid,ged->bgie", x, self._maps.maps[group])


class SharedMaps(Identity):
    """Prediction maps W_j that all inputs share.

    The methods and numbers are those of `EinsumMaps` with the kernel repeated for each input.

    Args:
        kernel: Tensor (1, J, E, D), prediction maps W_j.
        inputs: int or scalar integer tensor, I.

    Example:

    >>> maps = SharedMaps(ops.ones((1, 5, 3, 4)), inputs=6)
    >>> maps.up(maps.lay_pairs(ops.ones((2, 6, 5))), ops.ones((2, 6, 4))).shape
    TensorShape([2, 5, 3])
    """

    Agreement = SharedAgreement
    images_axis = 0

    def __init__(self, kernel: Tensor, inputs: Tensor) -> None:
        self.kernel = at_least_float32(kernel)
        self.inputs = inputs
        _, self.outputs, self.out_dim, self.in_dim = self.kernel.shape
        self.input_shape, self.output_shape = (inputs, self.in_dim), (self.outputs, self.out_dim)
        self.maps = self.kernel[0]
        self.map_shapes = [(self.outputs, self.out_dim, self.in_dim)]
        self.group = -(-self.outputs // _MOST_GROUPS)

    def images_at_once(self, held=1):
        """Return the images per slice; `held` scales the memory of a forward step."""
        per_input = max(self.outputs, self.group * self.out_dim, self.in_dim)
        per_image = self.inputs * per_input
        images = at_once(BLOCK) // (held * per_image)
        return max(1, images) if isinstance(images, int) else ops.maximum(images, 1)

    def lay_pairs(self, c):
        """Convert pairs (B, I, J) to one block (B, J, I)."""
        return [ops.transpose(c, (0, 2, 1))]

    def unlay_pairs(self, blocks):
        """Convert one block (B, J, I) to pairs (B, I, J)."""
        return ops.transpose(blocks[0], (0, 2, 1))

    def unlay_maps(self, blocks):
        """Convert one block of maps to a kernel (1, J, E, D)."""
        return blocks[0][None]

    def lay_numbers(self, values):
        """Return values (J,) in a shape that broadcasts to (B, J)."""
        return values[None]

    def sum_over_inputs(self, blocks):
        """Sum one block (B, J, I) over the inputs, to (B, J)."""
        return ops.sum(blocks[0], axis=2)

    def equal_pairs(self, share, x):
        """Return coefficients c_ij = share_j for all inputs, with `share` (1, J)."""
        return [ops.broadcast_to(share[:, :, None], (ops.shape(x)[0], self.outputs, self.inputs))]

    def add_to_outputs(self, blocks, values):
        """Add values (B, J) to one block (B, J, I)."""
        return [blocks[0] + values[:, :, None]]

    def softmax(self, logits, softmax_over, scale, leaky=False):
        """Return `scale` times the softmax; `leaky` adds a logit of zero and drops its share."""
        axis, (logits,) = _axis(softmax_over), logits
        largest = ops.max(logits, axis=axis, keepdims=True, initial=-1e30)
        largest = ops.maximum(largest, 0) if leaky else largest
        powers = ops.exp(logits - largest)
        total = ops.sum(powers, axis=axis, keepdims=True)
        total = total + ops.exp(-largest) if leaky else total
        return [powers * (scale / total)]

    def totals(self, blocks, softmax_over):
        """Return sums over the inputs or the outputs, as a list that broadcasts to the block."""
        return [ops.sum(blocks[0], axis=_axis(softmax_over), keepdims=True)]

    def up(self, c, x):
        """Return the pre-activations z_j = W_j sum_i c_ij x_i, of shape (B, J, E)."""
        return ops.einsum("bjd,jed->bje", ops.matmul(c[0], x), self.maps)

    def down(self, c, y):
        """Return the pre-activations z~_i = sum_j c_ij W_j^T y_j, of shape (B, I, D)."""
        return ops.matmul(ops.transpose(c[0], (0, 2, 1)), self._sent_down(y))

    def agreement(self, y, x):
        """Return the inner products y_j . W_j x_i, as one block (B, J, I)."""
        return [ops.matmul(self._sent_down(y), ops.transpose(x, (0, 2, 1)))]

    def correlation(self, c, y, x):
        """Return [sum_bi c_ij y_j x_i^T], of shape (J, E, D)."""
        return [ops.einsum("bje,bjd->jed", y, ops.matmul(c[0], x))]

    def equal_up(self, x):
        """Return W_j sum_i x_i, of shape (B, J, E)."""
        return ops.einsum("bd,jed->bje", ops.sum(x, axis=1), self.maps)

    def equal_down(self, y):
        """Return sum_j W_j^T y_j, of shape (B, I, D), the same for every input."""
        sent = ops.einsum("bje,jed->bd", y, self.maps)[:, None]
        return ops.broadcast_to(sent, (ops.shape(y)[0], self.inputs, self.in_dim))

    def equal_correlation(self, y, x):
        """Return [sum_bi y_j x_i^T], of shape (J, E, D)."""
        return [ops.einsum("bje,bd->jed", y, ops.sum(x, axis=1))]

    def groups(self):
        """Return slices of the outputs whose votes are computed at once."""
        return [slice(j, j + self.group) for j in range(0, self.outputs, self.group)]

    def _sent_down(self, y):
        return ops.einsum("bje,jed->bjd", y, self.maps)


def _axis(softmax_over):
    return 2 if softmax_over == "inputs" else 1
