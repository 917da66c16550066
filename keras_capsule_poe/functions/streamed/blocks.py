"""Sums over all pairs of capsules of two layers, as large products over blocks.

A vote W_ij x_i is never stored. With c_ij the routing coefficients, every sum that routing and
contrastive divergence need is a product of W with something smaller:

    sum_i c_ij W_ij x_i   =  (c_ij x_i, all i side by side)  times  W_j        collective
    y_j . W_ij x_i        =  (W_ij^T y_j) . x_i                                agreement
    sum_j c_ij W_ij^T y_j =  (W_ij^T y_j), weighted and added up               backprojection
    sum_b c_ij y_j x_i^T  =  y_j^T  times  (c_ij x_i, all i side by side)      correlation

The layer with fewer capsules is taken one capsule (or one group) at a time, so that a product
runs over all the capsules of the other layer at once. What is held per pair is a vector of the
side with many capsules, whose vectors are usually the shorter ones (8 numbers instead of 16).

Shapes: B images; I input capsules of D dimensions, J output capsules of E dimensions; seen the
other way, F capsules of P dimensions on the side with few, M of R on the side with many.
Vectors are laid out as (F, B, P) on the first side and as (B, R, M) on the second, and what
belongs to a pair as a list of blocks (group, B, 1, M), the groups cut from F: long rows over M,
which element-wise work runs through fast.
"""

from functools import partial, reduce
from typing import Any, NamedTuple

from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.processor import BLOCK, at_once
from keras_capsule_poe.functions.streamed.votes import BlockAgreement

# With a first value, an empty batch has a largest logit, too.
_largest = partial(ops.max, initial=-1e30)
# Groups, at most, into which the side with few capsules is cut: more make the graph larger.
_MOST_GROUPS = 32
# Numbers of an image in a group, about, at least: of fewer, operations take longer to begin.
_LEAST_NUMBERS = 1024


class EqualPairs(NamedTuple):
    """Coefficients c_ij = share_j of so many images: a sum over pairs is a single product.

    `share`: tensor that fits outputs laid out.
    """

    share: Any
    images: Any


class BlockMaps:
    """Prediction maps W_ij, the sums over pairs of capsules taken in blocks.

    The same verbs and numbers as `EinsumMaps`, see `functions.maps`.

    Args:
        kernel: Tensor (I, J, E, D), prediction maps W_ij.

    Examples:

    >>> maps = BlockMaps(ops.ones((6, 5, 3, 4)))
    >>> x, c = maps.lay_inputs(ops.ones((2, 6, 4))), maps.lay_pairs(ops.ones((2, 6, 5)))
    >>> maps.unlay_outputs(maps.up(c, x)).shape
    TensorShape([2, 5, 3])
    """

    def __init__(self, kernel):
        self.kernel = kernel = at_least_float32(kernel)
        self.inputs, self.outputs, out_dim, in_dim = kernel.shape
        self.input_shape, self.output_shape = (self.inputs, in_dim), (self.outputs, out_dim)
        # Votes of few dimensions are often much shorter than W and x; their lengths then need
        # the votes' own side as the side with many.
        self.inputs_are_many = self.inputs >= self.outputs and out_dim >= max(in_dim, 8)
        # (F, P, R, M): the vectors of both sides in the middle, many capsules along the rows.
        self._order = (1, 2, 3, 0) if self.inputs_are_many else (0, 3, 2, 1)
        maps = ops.transpose(kernel, self._order)
        self.few, self.few_dim, self.many_dim, self.many = maps.shape
        whole = self.few * self.many_dim * self.many
        groups = min(max(whole // _LEAST_NUMBERS, 1), _MOST_GROUPS)
        self._group = -(-self.few // groups)
        self._flat_maps = ops.reshape(maps, (self.few, self.few_dim, -1))
        self.flat_shape = tuple(self._flat_maps.shape)
        self._blocks = self.split(self._flat_maps)
        self.map_shapes = [tuple(block.shape) for block in self._blocks]
        # Where the vectors are in the layouts of the two sides.
        self.input_axis, self.output_axis = (1, 2) if self.inputs_are_many else (2, 1)
        # And where the images are in the outputs', less their vectors.
        self.images_axis = 1 if self.inputs_are_many else 0

    def images_at_once(self, held=1):
        """How many images to take at a time, so that memory grows with neither B nor I J.

        Args:
            held: How many times as much as in a forward step is held at once.
        """
        per_capsule = max(self._group * self.many_dim, self.few // 4, self.many_dim**2 // 8)
        per_image = self.many * per_capsule
        return max(1, at_once(BLOCK) // (held * per_image))

    # Layouts

    def split(self, tensor):
        """Groups of the few, as a list of tensors (group, ...)."""
        if self.few == self._group:
            return [tensor]
        if self.few % self._group:
            return ops.split(tensor, list(range(self._group, self.few, self._group)), axis=0)
        # One operation in TensorFlow's graphs, and not two dozen.
        return ops.split(tensor, self.few // self._group, axis=0)

    def lay_inputs(self, x):
        """(B, I, D) to the layout of its side."""
        return ops.transpose(x, (0, 2, 1) if self.inputs_are_many else (1, 0, 2))

    def lay_outputs(self, y):
        """(B, J, E) to the layout of its side."""
        return ops.transpose(y, (1, 0, 2) if self.inputs_are_many else (0, 2, 1))

    # Both permutations are their own inverse.
    unlay_inputs, unlay_outputs = lay_inputs, lay_outputs

    def lay_pairs(self, c):
        """(B, I, J) to blocks (group, B, 1, M)."""
        c = ops.transpose(c, (2, 0, 1) if self.inputs_are_many else (1, 0, 2))
        return self.split(c[:, :, None])

    def unlay_pairs(self, blocks):
        """Blocks (group, B, 1, M), or `EqualPairs`, to (B, I, J)."""
        if isinstance(blocks, EqualPairs):
            c = ops.broadcast_to(blocks.share, (self.few, blocks.images, self.many))
        else:
            c = ops.squeeze(ops.concatenate(blocks, axis=0), axis=2)
        return ops.transpose(c, (1, 2, 0) if self.inputs_are_many else (1, 0, 2))

    def unlay_maps(self, blocks):
        """Blocks of maps (group, P, R*M) to the kernel's (I, J, E, D)."""
        maps = ops.concatenate(blocks, axis=0)
        maps = ops.reshape(maps, (self.few, self.few_dim, self.many_dim, self.many))
        return ops.transpose(maps, [self._order.index(axis) for axis in range(4)])

    def lay_numbers(self, values):
        """Numbers per output, (J,), to a shape that fits outputs laid out, less their vectors."""
        return values[:, None] if self.inputs_are_many else values[None]

    def sum_over_inputs(self, blocks):
        """Blocks (group, B, 1, M) to numbers per image and output, laid out."""
        if self.inputs_are_many:
            return ops.concatenate([ops.sum(block, axis=(2, 3)) for block in blocks], axis=0)
        return sum(ops.sum(block, axis=(0, 2)) for block in blocks)

    # Numbers per pair, as blocks

    def equal_pairs(self, share, x):
        """`EqualPairs` c_ij = share_j of all inputs; share as from `lay_numbers`."""
        images = ops.shape(x)[0 if self.inputs_are_many else 1]
        return EqualPairs(ops.expand_dims(share, self.output_axis), images)

    def add_to_outputs(self, blocks, values):
        """Blocks with a number per image and output, laid out, added."""
        if self.inputs_are_many:
            spread = self.split(values[:, :, None, None])
        else:
            spread = [values[None, :, None]] * len(self._blocks)
        return [block + value for block, value in zip(blocks, spread)]

    def softmax(self, logits, normalize, scale, leaky=False):
        """Softmax over the inputs or the outputs, maybe with a logit of zero, times `scale`."""
        largest = self._over(logits, normalize, _largest, ops.maximum)
        if leaky:
            largest = [ops.maximum(most, 0) for most in largest]
        powers = [ops.exp(block - most) for block, most in zip(logits, largest)]
        totals = self.totals(powers, normalize)
        if leaky:
            totals = [total + ops.exp(-most) for total, most in zip(totals, largest)]
        return [power * (scale / total) for power, total in zip(powers, totals)]

    def totals(self, blocks, normalize):
        """Sums over the inputs or the outputs, as a list that fits the blocks."""
        return self._over(blocks, normalize, ops.sum, ops.add)

    def _over(self, blocks, normalize, within, between):
        if (normalize == "inputs") == self.inputs_are_many:
            return [within(block, axis=3, keepdims=True) for block in blocks]
        if self._group > 1:
            blocks = [within(block, axis=0, keepdims=True) for block in blocks]
        return [reduce(between, blocks)] * len(blocks)

    # Sums over pairs; x and y in the layouts of their sides, c as blocks (group, B, 1, M) or equal

    def up(self, c, x):
        """z_j = sum_i c_ij W_ij x_i, laid out."""
        if isinstance(c, EqualPairs):
            return self.equal_up(x) * c.share
        return self._to_few(c, x) if self.inputs_are_many else self._to_many(c, x)

    def down(self, c, y):
        """z~_i = sum_j c_ij W_ij^T y_j, laid out."""
        if isinstance(c, EqualPairs):
            return self.equal_down(y * c.share)
        return self._to_many(c, y) if self.inputs_are_many else self._to_few(c, y)

    def agreements(self, kind):
        """`BlockAgreement` of `kind`, `"cosine"` or `"dot"`."""
        return BlockAgreement(self, kind)

    def agreement(self, y, x):
        """y_j . W_ij x_i, as blocks (group, B, 1, M)."""
        few, many = (y, x) if self.inputs_are_many else (x, y)
        return [ops.sum(p * many, axis=2, keepdims=True) for p in self.products(few)]

    def correlation(self, c, y, x):
        """The sum over images of c_ij y_j x_i^T, as blocks of maps (group, P, R*M)."""
        if isinstance(c, EqualPairs):
            return self.equal_correlation(y * c.share, x)
        few, many = (y, x) if self.inputs_are_many else (x, y)
        return [
            ops.matmul(ops.transpose(f, (0, 2, 1)), self.flat(block * many))
            for block, f in zip(c, self.split(few))
        ]

    # The same with all c_ij = 1, each a single product

    def equal_up(self, x):
        """sum_i W_ij x_i, laid out."""
        return self._all_to_few(x) if self.inputs_are_many else self._all_to_many(x)

    def equal_down(self, y):
        """sum_j W_ij^T y_j, laid out."""
        return self._all_to_many(y) if self.inputs_are_many else self._all_to_few(y)

    def equal_correlation(self, y, x):
        """The sum over images of y_j x_i^T, as blocks of maps (group, P, R*M)."""
        few, many = (y, x) if self.inputs_are_many else (x, y)
        many = ops.reshape(many, (-1, self.flat_shape[2]))
        sums = ops.matmul(ops.transpose(self._few_rows(few)), many)
        return self.split(ops.reshape(sums, self.flat_shape))

    # By few and many

    def products(self, few):
        """Vectors (F, B, P) times their maps, as a list of (group, B, R, M)."""
        shape = (-1, self.many_dim, self.many)
        pairs = zip(self.split(few), self._blocks)
        return [ops.reshape(ops.matmul(f, m), (m.shape[0], *shape)) for f, m in pairs]

    def transposed_products(self, weighted):
        """A list of (group, B, R, M) times the transposed maps: (F, B, P)."""
        pairs = zip(weighted, self._blocks)
        sums = [ops.matmul(self.flat(w), ops.transpose(m, (0, 2, 1))) for w, m in pairs]
        return ops.concatenate(sums, axis=0)

    def flat(self, tensor):
        """(group, B, R, M) to (group, B, R*M)."""
        return ops.reshape(tensor, (tensor.shape[0], -1, self.flat_shape[2]))

    def _to_few(self, c, many):
        return self.transposed_products([block * many for block in c])

    def _to_many(self, c, few):
        total, added_up = 0.0, ops.squeeze if self._group == 1 else ops.sum
        for block, products in zip(c, self.products(few)):
            total = total + added_up(block * products, axis=0)
        return total

    def _all_to_few(self, many):
        maps = ops.reshape(self._flat_maps, (-1, self.flat_shape[2]))
        sums = ops.matmul(ops.reshape(many, (-1, self.flat_shape[2])), ops.transpose(maps))
        return ops.transpose(ops.reshape(sums, (-1, self.few, self.few_dim)), (1, 0, 2))

    def _all_to_many(self, few):
        maps = ops.reshape(self._flat_maps, (-1, self.flat_shape[2]))
        return ops.reshape(ops.matmul(self._few_rows(few), maps), (-1, self.many_dim, self.many))

    def _few_rows(self, few):
        return ops.reshape(ops.transpose(few, (1, 0, 2)), (-1, self.few * self.few_dim))
