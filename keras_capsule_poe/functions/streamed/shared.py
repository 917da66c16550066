"""Sums over all pairs of capsules of two layers whose inputs share their maps W_j.

What an input sends to an output differs from what another sends by the inputs alone, so that the
maps are applied after the sum over them, or before it:

    sum_i c_ij W_j x_i    =  W_j (sum_i c_ij x_i)         collective
    y_j . W_j x_i         =  (W_j^T y_j) . x_i            agreement
    sum_j c_ij W_j^T y_j  =  sum_j c_ij (W_j^T y_j)       backprojection
    sum_bi c_ij y_j x_i^T =  sum_b y_j (sum_i c_ij x_i)^T correlation

Per pair no more than a number is held. What belongs to a pair is a list of one block (B, J, I).
"""

from collections import namedtuple

from keras import ops

from keras_capsule_poe.functions.maps import Identity
from keras_capsule_poe.functions.norms import at_least_float32, length
from keras_capsule_poe.functions.processor import BLOCK, at_once

# Outputs whose votes are taken at once, to find their lengths: so many groups at most.
_MOST_GROUPS = 32

# Inputs, a divisor of theirs that is one here, and 1/|vote| (B, J, I); None for dots.
Lengths = namedtuple("Lengths", ["x", "size", "inverse"])


class SharedMaps(Identity):
    """Prediction maps W_j that all inputs share.

    The same verbs and numbers as `EinsumMaps` of the kernel repeated for each input.

    Args:
        kernel: Tensor (1, J, E, D), prediction maps W_j.
        inputs: int or scalar integer tensor, I.

    Examples:

    >>> maps = SharedMaps(ops.ones((1, 5, 3, 4)), inputs=6)
    >>> maps.up(maps.lay_pairs(ops.ones((2, 6, 5))), ops.ones((2, 6, 4))).shape
    TensorShape([2, 5, 3])
    """

    images_axis = 0

    def __init__(self, kernel, inputs):
        self.kernel = at_least_float32(kernel)
        self.inputs = inputs
        _, self.outputs, self.out_dim, self.in_dim = self.kernel.shape
        self.input_shape, self.output_shape = (inputs, self.in_dim), (self.outputs, self.out_dim)
        self.maps = self.kernel[0]
        self.map_shapes = [(self.outputs, self.out_dim, self.in_dim)]
        self.group = -(-self.outputs // _MOST_GROUPS)

    def images_at_once(self, held=1):
        """How many images to take at a time, so that memory grows with neither B nor I J."""
        per_input = max(self.outputs, self.group * self.out_dim, self.in_dim)
        per_image = self.inputs * per_input
        images = at_once(BLOCK) // (held * per_image)
        return max(1, images) if isinstance(images, int) else ops.maximum(images, 1)

    def lay_pairs(self, c):
        """(B, I, J) to one block (B, J, I)."""
        return [ops.transpose(c, (0, 2, 1))]

    def unlay_pairs(self, blocks):
        """One block (B, J, I) to (B, I, J)."""
        return ops.transpose(blocks[0], (0, 2, 1))

    def unlay_maps(self, blocks):
        """The one block, as the kernel."""
        return blocks[0][None]

    def lay_numbers(self, values):
        """Numbers per output, (J,), to a shape that fits outputs, less their vectors."""
        return values[None]

    def sum_over_inputs(self, blocks):
        """Numbers per image and output, (B, J)."""
        return ops.sum(blocks[0], axis=2)

    # Numbers per pair

    def equal_pairs(self, share, x):
        """The coefficients c_ij = share_j of all inputs; share (1, J)."""
        return [ops.broadcast_to(share[:, :, None], (ops.shape(x)[0], self.outputs, self.inputs))]

    def add_to_outputs(self, blocks, values):
        """Pairs with a number per image and output, (B, J), added."""
        return [blocks[0] + values[:, :, None]]

    def softmax(self, logits, normalize, scale, leaky=False):
        """Softmax over the inputs or the outputs, maybe with a logit of zero, times `scale`."""
        axis, (logits,) = _axis(normalize), logits
        largest = ops.max(logits, axis=axis, keepdims=True, initial=-1e30)
        largest = ops.maximum(largest, 0) if leaky else largest
        powers = ops.exp(logits - largest)
        total = ops.sum(powers, axis=axis, keepdims=True)
        total = total + ops.exp(-largest) if leaky else total
        return [powers * (scale / total)]

    def totals(self, blocks, normalize):
        """Sums over the inputs or the outputs, as a list that fits the blocks."""
        return [ops.sum(blocks[0], axis=_axis(normalize), keepdims=True)]

    # Sums over pairs

    def up(self, c, x):
        """z_j = W_j sum_i c_ij x_i: (B, J, E)."""
        return ops.einsum("bjd,jed->bje", ops.matmul(c[0], x), self.maps)

    def down(self, c, y):
        """z~_i = sum_j c_ij W_j^T y_j: (B, I, D)."""
        return ops.matmul(ops.transpose(c[0], (0, 2, 1)), self._sent_down(y))

    def agreement(self, y, x):
        """y_j . W_j x_i, as one block (B, J, I)."""
        return [ops.matmul(self._sent_down(y), ops.transpose(x, (0, 2, 1)))]

    def correlation(self, c, y, x):
        """The sum over images of c_ij y_j x_i^T, over all inputs: [(J, E, D)]."""
        return [ops.einsum("bje,bjd->jed", y, ops.matmul(c[0], x))]

    def equal_up(self, x):
        """W_j sum_i x_i: (B, J, E)."""
        return ops.einsum("bd,jed->bje", ops.sum(x, axis=1), self.maps)

    def equal_down(self, y):
        """sum_j W_j^T y_j, the same for every input: (B, I, D)."""
        sent = ops.einsum("bje,jed->bd", y, self.maps)[:, None]
        return ops.broadcast_to(sent, (ops.shape(y)[0], self.inputs, self.in_dim))

    def equal_correlation(self, y, x):
        """The sum over images of y_j x_i^T, over all inputs: [(J, E, D)]."""
        return [ops.einsum("bje,bd->jed", y, ops.sum(x, axis=1))]

    def agreements(self, kind):
        """`SharedAgreement` of `kind`."""
        return SharedAgreement(self, kind)

    def groups(self):
        """Slices of the outputs whose votes are taken at once."""
        return [slice(j, j + self.group) for j in range(0, self.outputs, self.group)]

    def _sent_down(self, y):
        return ops.einsum("bje,jed->bjd", y, self.maps)


class SharedAgreement:
    """y_j . W_j x_i, or with `kind="cosine"` y_j . W_j x_i / |W_j x_i|.

    Args:
        maps: `SharedMaps`.
        kind: `"cosine"`, or another word for the inner product.
    """

    def __init__(self, maps, kind):
        self._maps = maps
        self._is_cosine = kind == "cosine"
        # Of the sums of `gradient_of_lengths`.
        self.sums_shape = maps.map_shapes[0] if self._is_cosine else ()

    def measure(self, x):
        """`Lengths` of the votes, a group of outputs after the other."""
        if not self._is_cosine:
            return Lengths(x, None, None)
        sizes = [length(self._votes(x, group)) for group in self._maps.groups()]
        sizes = ops.concatenate(sizes, axis=1)
        is_zero = ops.equal(sizes, 0)
        inverse = ops.where(is_zero, 0.0, 1 / ops.where(is_zero, 1.0, sizes))
        return Lengths(x, ops.ones((), dtype=x.dtype), inverse)

    def measure_slopes(self, measured):
        """`Lengths` for the gradients: the same; that of a vote of no length is zero."""
        return measured

    def of(self, measured, y):
        """Agreements of y, as one block (B, J, I)."""
        (block,) = self._maps.agreement(y, measured.x)
        return [block * measured.inverse if self._is_cosine else block]

    def gradient(self, measured, y, upstream):
        """Gradient of `of` in y, in `measured.x` and in the maps, the lengths held fixed."""
        if self._is_cosine:
            upstream = [upstream[0] * measured.inverse]
        maps, x = self._maps, measured.x
        return maps.up(upstream, x), maps.down(upstream, y), maps.correlation(upstream, y, x)

    def gradient_of_lengths(self, measured, products):
        """What the lengths of the votes add to the gradient of cosines.

        Args:
            measured: From `measure`.
            products: Cosine times the gradient in it, one block (B, J, I).

        Returns:
            Gradient in x (B, I, D), and in the maps (J, E, D).
        """
        # cosine = agreement / |v|: its gradient in v, through the length, is -cosine v / |v|^2.
        weights = -products[0] * ops.square(measured.inverse)
        in_x, in_maps = 0.0, []
        for group in self._maps.groups():
            votes = weights[:, group, :, None] * self._votes(measured.x, group)
            in_x = in_x + ops.einsum("bgie,ged->bid", votes, self._maps.maps[group])
            in_maps.append(ops.einsum("bgie,bid->ged", votes, measured.x))
        return in_x, ops.concatenate(in_maps, axis=0)

    def gradient_of_sums(self, sums):
        """Gradient in the kernel, (1, J, E, D), from `gradient_of_lengths`'s sums."""
        return sums[None]

    def _votes(self, x, group):
        """Votes of a few outputs, (B, group, I, E)."""
        return ops.einsum("bid,ged->bgie", x, self._maps.maps[group])


def _axis(normalize):
    return 2 if normalize == "inputs" else 1
