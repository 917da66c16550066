"""Sums over all pairs of capsules of two layers, in blocks that do not store the votes."""

from collections import namedtuple
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
from keras import backend, ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.numerics import BLOCK, at_least_float32, at_once

# Scaled inputs, their scales, and 1/|vote| as blocks; the last two are None for dots.
Lengths = namedtuple("Lengths", ["x", "size", "inverse"])


class BlockAgreement:
    """Agreement y_j . W_ij x_i, or y_j . W_ij x_i/|W_ij x_i| for `kind="cosine"`."""

    def __init__(self, maps, kind):
        self._maps = maps
        self._is_cosine = kind == "cosine"
        if not self._is_cosine:
            return
        # Unit scales of maps and inputs keep all squares in the range of floats. A vote shorter
        # than rounding counts as that long. With many inputs, |W_ij x_i|^2 is computed as
        # x_i^T (W_ij^T W_ij) x_i, because W^T W is the same for all images.
        kernel = maps.kernel
        self._unit = ops.maximum(ops.maximum(ops.max(kernel), -ops.min(kernel)), 1e-30)
        self._scaled = kernel / self._unit
        if maps.inputs_are_many:
            gram = ops.matmul(ops.transpose(self._scaled, (0, 1, 3, 2)), self._scaled)
            self._gram = ops.reshape(gram, (maps.many, maps.few, -1))
            squares = ops.transpose(ops.sum(ops.diagonal(gram, axis1=2, axis2=3), axis=2))
        else:
            squares = ops.sum(ops.square(self._scaled), axis=(2, 3))
        rounding = float(np.finfo(backend.standardize_dtype(kernel.dtype)).eps)
        floors = ops.maximum(squares * rounding**2, 1e-30)
        self._floors = maps.split(floors[:, None, None])

    def measure(self, x):
        """Return the `Lengths` of the votes, for inputs in the layout of the maps."""
        if not self._is_cosine:
            return Lengths(x, None, None)
        size = ops.max(ops.abs(x), axis=self._maps.input_axis, keepdims=True, initial=0.0)
        size = ops.where(ops.equal(size, 0), ops.ones_like(size), size)
        x, maps = x / size, self._maps
        # |W_ij x_i|^2 in units of the maps' size, as blocks `(group, B, 1, M)`.
        if maps.inputs_are_many:
            squares = ops.matmul(self._gram, _outer_products(ops.transpose(x, (2, 1, 0))))
            squares = maps.split(ops.transpose(squares, (1, 2, 0))[:, :, None])
        else:
            votes = maps.products(x / self._unit)
            squares = [ops.sum(ops.square(vote), axis=2, keepdims=True) for vote in votes]
        pairs = zip(squares, self._floors)
        return Lengths(x, size, [ops.rsqrt(ops.maximum(square, floor)) for square, floor in pairs])

    def measure_slopes(self, measured):
        """Return the `Lengths` for gradients: `1/|vote|` is zero for votes below rounding."""
        if not self._is_cosine:
            return measured
        inverse = [
            ops.where(inverse < ops.rsqrt(floor), inverse, ops.zeros_like(inverse))
            for inverse, floor in zip(measured.inverse, self._floors)
        ]
        return measured._replace(inverse=inverse)

    def of(self, measured, y):
        """Return the agreements of y, as blocks `(group, B, 1, M)`."""
        if not self._is_cosine:
            return self._maps.agreement(y, measured.x)
        blocks = self._maps.agreement(y / self._unit, measured.x)
        return [block * inverse for block, inverse in zip(blocks, measured.inverse)]

    def gradient(self, measured, y, upstream):
        """Return the gradients of `of` in y, x and the maps, for constant lengths."""
        if self._is_cosine:
            factors = [inverse / self._unit for inverse in measured.inverse]
            upstream = [block * factor for block, factor in zip(upstream, factors)]
        in_y = self._maps.up(upstream, measured.x)
        in_x = self._maps.down(upstream, y)
        return in_y, in_x, self._maps.correlation(upstream, y, measured.x)

    def gradient_of_lengths(self, measured, products):
        """Return the gradient in x through the votes' lengths, and sums over images."""
        # cosine = agreement / |v|, so its gradient in v through |v| is -cosine v / |v|^2.
        # `products` is cosine times the gradient in it.
        weights = [
            -block * ops.square(inverse) for block, inverse in zip(products, measured.inverse)
        ]
        maps, x = self._maps, measured.x
        if maps.inputs_are_many:
            weights = ops.squeeze(ops.concatenate(weights, axis=0), axis=2)
            weights = ops.transpose(weights, (2, 0, 1))
            grams = ops.matmul(ops.transpose(self._gram, (0, 2, 1)), weights)
            grams = ops.reshape(grams, (maps.many, maps.many_dim, maps.many_dim, -1))
            rows = ops.transpose(x, (2, 1, 0))
            in_x = ops.sum(grams * rows[:, None], axis=2)
            sums = ops.matmul(weights, ops.transpose(_outer_products(rows), (0, 2, 1)))
            return ops.transpose(in_x, (2, 1, 0)), sums
        votes = maps.products(x / self._unit)
        votes = [weight / self._unit * vote for weight, vote in zip(weights, votes)]
        sums = [
            ops.matmul(ops.transpose(few, (0, 2, 1)), maps.flat(vote))
            for few, vote in zip(maps.split(x), votes)
        ]
        return maps.transposed_products(votes), ops.concatenate(sums, axis=0)

    @property
    def sums_shape(self):
        """Shape of the sums over images in `gradient_of_lengths`."""
        if not self._is_cosine:
            return ()
        return self._gram.shape if self._maps.inputs_are_many else self._maps.flat_shape

    def gradient_of_sums(self, sums):
        """Return the gradient in the kernel (I, J, E, D) from the sums over images."""
        maps = self._maps
        if not maps.inputs_are_many:
            return maps.unlay_maps(maps.split(sums))
        shape = (maps.many, maps.few, maps.many_dim, maps.many_dim)
        return ops.matmul(self._scaled, ops.reshape(sums, shape) / self._unit)


def _outer_products(x):
    """Return all products x_d x_d', from (M, R, B) to (M, R*R, B)."""
    products = x[:, :, None] * x[:, None]
    return ops.reshape(products, (x.shape[0], x.shape[1] ** 2, -1))


# `initial` defines the maximum of an empty batch.
_largest = partial(ops.max, initial=-1e30)
# Maximum number of groups of the side with few capsules; more make the graph larger.
_MOST_GROUPS = 32
# Approximate minimum of numbers per image and group; with fewer, launch times dominate.
_LEAST_NUMBERS = 1024


class EqualPairs(NamedTuple):
    """Coefficients c_ij = share_j of all inputs; a sum over pairs is then a single product."""

    share: Any
    images: Any


class BlockMaps:
    """Prediction maps W_ij, with sums over pairs of capsules computed in blocks.

    Votes are not stored. The methods and numbers are those of `EinsumMaps`, for tensors in the
    layout of the maps.

    Args:
        kernel: Tensor (I, J, E, D), maps from I input capsules of D dimensions to J output
            capsules of E dimensions.

    Example:

    >>> maps = BlockMaps(ops.ones((6, 5, 3, 4)))
    >>> x, c = maps.lay_inputs(ops.ones((2, 6, 4))), maps.lay_pairs(ops.ones((2, 6, 5)))
    >>> maps.unlay_outputs(maps.up(c, x)).shape
    TensorShape([2, 5, 3])
    """

    Agreement = BlockAgreement
    kernel_axes: tuple[int, ...]

    def __new__(cls, kernel):
        inputs, outputs, out_dim, in_dim = kernel.shape
        # Votes of few dimensions can be much shorter than |W| |x|. The Gram matrix of
        # `BlockAgreement` would then lose precision, so their lengths need the votes.
        inputs_are_many = inputs >= outputs and out_dim >= max(in_dim, 8)
        return super().__new__(_ManyInputs if inputs_are_many else _ManyOutputs)

    def __init__(self, kernel: Tensor) -> None:
        self.kernel = kernel = at_least_float32(kernel)
        self.inputs, self.outputs, out_dim, in_dim = kernel.shape
        self.input_shape, self.output_shape = (self.inputs, in_dim), (self.outputs, out_dim)
        maps = ops.transpose(kernel, self.kernel_axes)
        self.few, self.few_dim, self.many_dim, self.many = maps.shape
        whole = self.few * self.many_dim * self.many
        groups = min(max(whole // _LEAST_NUMBERS, 1), _MOST_GROUPS)
        self._group = -(-self.few // groups)
        self._flat_maps = ops.reshape(maps, (self.few, self.few_dim, -1))
        self.flat_shape = tuple(self._flat_maps.shape)
        self._blocks = self.split(self._flat_maps)
        self.map_shapes = [tuple(block.shape) for block in self._blocks]

    @property
    def form(self):
        """Class that makes such maps of a kernel."""
        return BlockMaps

    def images_at_once(self, held=1):
        """Return the images per slice; `held` scales the memory of a forward step."""
        per_capsule = max(self._group * self.many_dim, self.few // 4, self.many_dim**2 // 8)
        return max(1, at_once(BLOCK) // (held * self.many * per_capsule))

    def split(self, tensor):
        """Return a tensor (F, ...) as a list of groups (group, ...)."""
        if self.few == self._group:
            return [tensor]
        if self.few % self._group:
            return ops.split(tensor, list(range(self._group, self.few, self._group)), axis=0)
        # An int makes one operation in TensorFlow's graphs instead of two dozen.
        return ops.split(tensor, self.few // self._group, axis=0)

    def lay_inputs(self, x):
        """Convert inputs (B, I, D) to the layout of their side, and back."""
        return ops.transpose(x, self.input_axes)

    def lay_outputs(self, y):
        """Convert outputs (B, J, E) to the layout of their side, and back."""
        return ops.transpose(y, self.output_axes)

    # The permutations are their own inverses.
    unlay_inputs, unlay_outputs = lay_inputs, lay_outputs

    def lay_pairs(self, c):
        """Convert pairs (B, I, J) to blocks `(group, B, 1, M)`."""
        return self.split(ops.transpose(c, self.pair_axes)[:, :, None])

    def unlay_pairs(self, blocks):
        """Convert blocks `(group, B, 1, M)` or `EqualPairs` to pairs (B, I, J)."""
        if isinstance(blocks, EqualPairs):
            c = ops.broadcast_to(blocks.share, (self.few, blocks.images, self.many))
        else:
            c = ops.squeeze(ops.concatenate(blocks, axis=0), axis=2)
        return ops.transpose(c, [self.pair_axes.index(axis) for axis in range(3)])

    def unlay_maps(self, blocks):
        """Convert blocks of maps (group, P, R*M) to a kernel (I, J, E, D)."""
        maps = ops.concatenate(blocks, axis=0)
        maps = ops.reshape(maps, (self.few, self.few_dim, self.many_dim, self.many))
        return ops.transpose(maps, [self.kernel_axes.index(axis) for axis in range(4)])

    def lay_numbers(self, values):
        """Return values (J,) in a shape that broadcasts to values per image and output."""
        return ops.expand_dims(values, self.images_axis)

    def equal_pairs(self, share, x):
        """Return `EqualPairs` c_ij = share_j, with `share` from `lay_numbers`."""
        images = ops.shape(x)[self.input_axes.index(0)]
        return EqualPairs(ops.expand_dims(share, self.output_axis), images)

    def softmax(self, logits, softmax_over, scale, leaky=False):
        """Return `scale` times the softmax; `leaky` adds a logit of zero and drops its share."""
        largest = self._over(logits, softmax_over, _largest, ops.maximum)
        if leaky:
            largest = [ops.maximum(most, 0) for most in largest]
        powers = [ops.exp(block - most) for block, most in zip(logits, largest)]
        totals = self._over(powers, softmax_over)
        if leaky:
            totals = [total + ops.exp(-most) for total, most in zip(totals, largest)]
        return [power * (scale / total) for power, total in zip(powers, totals)]

    def totals(self, blocks, softmax_over):
        """Return sums over the inputs or the outputs, as a list that broadcasts to the blocks."""
        return self._over(blocks, softmax_over)

    def _over(self, blocks, softmax_over, within=ops.sum, between=ops.add):
        if (softmax_over == "inputs") == self.inputs_are_many:
            return [within(block, axis=3, keepdims=True) for block in blocks]
        if self._group > 1:
            blocks = [within(block, axis=0, keepdims=True) for block in blocks]
        return [reduce(between, blocks)] * len(blocks)

    def agreement(self, y, x):
        """Return the inner products y_j . W_ij x_i, as blocks `(group, B, 1, M)`."""
        few, many = (y, x) if self.inputs_are_many else (x, y)
        return [ops.sum(p * many, axis=2, keepdims=True) for p in self.products(few)]

    def correlation(self, c, y, x):
        """Return sum_b c_ij y_j x_i^T over images b, as blocks of maps (group, P, R*M)."""
        if isinstance(c, EqualPairs):
            return self.equal_correlation(y * c.share, x)
        few, many = (y, x) if self.inputs_are_many else (x, y)
        return [
            ops.matmul(ops.transpose(f, (0, 2, 1)), self.flat(block * many))
            for block, f in zip(c, self.split(few))
        ]

    def equal_correlation(self, y, x):
        """Return sum_b y_j x_i^T over images b, as blocks of maps (group, P, R*M)."""
        few, many = (y, x) if self.inputs_are_many else (x, y)
        many = ops.reshape(many, (-1, self.flat_shape[2]))
        rows = ops.reshape(ops.transpose(few, (1, 0, 2)), (-1, self.few * self.few_dim))
        sums = ops.matmul(ops.transpose(rows), many)
        return self.split(ops.reshape(sums, self.flat_shape))

    def products(self, few):
        """Multiply vectors (F, B, P) with their maps; return a list of `(group, B, R, M)`."""
        shape = (-1, self.many_dim, self.many)
        pairs = zip(self.split(few), self._blocks)
        return [ops.reshape(ops.matmul(f, m), (m.shape[0], *shape)) for f, m in pairs]

    def transposed_products(self, weighted):
        """Multiply a list of `(group, B, R, M)` with the transposed maps, to (F, B, P)."""
        pairs = zip(weighted, self._blocks)
        sums = [ops.matmul(self.flat(w), ops.transpose(m, (0, 2, 1))) for w, m in pairs]
        return ops.concatenate(sums, axis=0)

    def flat(self, tensor):
        """Reshape `(group, B, R, M)` to `(group, B, R*M)`."""
        return ops.reshape(tensor, (tensor.shape[0], -1, self.flat_shape[2]))

    def _to_few(self, c, many):
        """Return z_j = sum_i c_ij W_ij x_i for many inputs, or z~_i = sum_j c_ij W_ij^T y_j."""
        if not isinstance(c, EqualPairs):
            return self.transposed_products([block * many for block in c])
        if self.inputs_are_many:
            return self._all_to_few(many) * c.share
        return self._all_to_few(many * c.share)

    def _to_many(self, c, few):
        """Return the sums over the few, see `_to_few`."""
        if isinstance(c, EqualPairs):
            if self.inputs_are_many:
                return self._all_to_many(few * c.share)
            return self._all_to_many(few) * c.share
        total, added_up = 0.0, ops.squeeze if self._group == 1 else ops.sum
        for block, products in zip(c, self.products(few)):
            total = total + added_up(block * products, axis=0)
        return total

    def _all_to_few(self, many):
        """Return the sums over all pairs, with coefficients of one, in one product."""
        maps = ops.reshape(self._flat_maps, (-1, self.flat_shape[2]))
        sums = ops.matmul(ops.reshape(many, (-1, self.flat_shape[2])), ops.transpose(maps))
        return ops.transpose(ops.reshape(sums, (-1, self.few, self.few_dim)), (1, 0, 2))

    def _all_to_many(self, few):
        """Return the sums over all pairs, with coefficients of one, in one product."""
        maps = ops.reshape(self._flat_maps, (-1, self.flat_shape[2]))
        rows = ops.reshape(ops.transpose(few, (1, 0, 2)), (-1, self.few * self.few_dim))
        return ops.reshape(ops.matmul(rows, maps), (-1, self.many_dim, self.many))


class _ManyInputs(BlockMaps):
    """Maps whose groups are of outputs: each block has all inputs."""

    inputs_are_many = True
    # Axes of the kernel as (F, P, R, M), and of the layouts of inputs, outputs and pairs.
    kernel_axes, input_axes, output_axes, pair_axes = (1, 2, 3, 0), (0, 2, 1), (1, 0, 2), (2, 0, 1)
    # Axes of the vectors in these layouts, and of the images in outputs without their vectors.
    input_axis, output_axis, images_axis = 1, 2, 1
    up, equal_up = BlockMaps._to_few, BlockMaps._all_to_few
    down, equal_down = BlockMaps._to_many, BlockMaps._all_to_many

    def sum_over_inputs(self, blocks):
        """Sum blocks `(group, B, 1, M)` over the inputs."""
        return ops.concatenate([ops.sum(block, axis=(2, 3)) for block in blocks], axis=0)

    def add_to_outputs(self, blocks, values):
        """Add values per image and output to blocks."""
        parts = self.split(values[:, :, None, None])
        return [block + value for block, value in zip(blocks, parts)]


class _ManyOutputs(BlockMaps):
    """Maps whose groups are of inputs: each block has all outputs."""

    inputs_are_many = False
    kernel_axes, input_axes, output_axes, pair_axes = (0, 3, 2, 1), (1, 0, 2), (0, 2, 1), (1, 0, 2)
    input_axis, output_axis, images_axis = 2, 1, 0
    up, equal_up = BlockMaps._to_many, BlockMaps._all_to_many
    down, equal_down = BlockMaps._to_few, BlockMaps._all_to_few

    def sum_over_inputs(self, blocks):
        """Sum blocks `(group, B, 1, M)` over the inputs."""
        return sum(ops.sum(block, axis=(0, 2)) for block in blocks)

    def add_to_outputs(self, blocks, values):
        """Add values per image and output to blocks."""
        return [block + values[None, :, None] for block in blocks]
