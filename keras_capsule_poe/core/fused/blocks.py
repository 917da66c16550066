"""Agreement of votes with vectors on the side of the outputs, and its gradient."""

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
        x = x / size
        inverse = [
            ops.rsqrt(ops.maximum(square, floor))
            for square, floor in zip(self._squares(x), self._floors)
        ]
        return Lengths(x, size, inverse)

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

    def _squares(self, x):
        """Return |W_ij x_i|^2 in units of the maps' size, as blocks `(group, B, 1, M)`."""
        maps = self._maps
        if not maps.inputs_are_many:
            votes = maps.products(x / self._unit)
            return [ops.sum(ops.square(vote), axis=2, keepdims=True) for vote in votes]
        squares = ops.matmul(self._gram, _outer_products(ops.transpose(x, (2, 1, 0))))
        return maps.split(ops.transpose(squares, (1, 2, 0))[:, :, None])


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

    def __init__(self, kernel: Tensor) -> None:
        self.kernel = kernel = at_least_float32(kernel)
        self.inputs, self.outputs, out_dim, in_dim = kernel.shape
        self.input_shape, self.output_shape = (self.inputs, in_dim), (self.outputs, out_dim)
        # Votes of few dimensions can be much shorter than |W| |x|. The Gram matrix of
        # `BlockAgreement` would then lose precision, so their lengths need the votes.
        self.inputs_are_many = self.inputs >= self.outputs and out_dim >= max(in_dim, 8)
        # Order of the kernel's axes as (F, P, R, M).
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
        # Axes of the vectors in the layouts of inputs and outputs.
        self.input_axis, self.output_axis = (1, 2) if self.inputs_are_many else (2, 1)
        # Axis of the images in outputs without their vectors.
        self.images_axis = 1 if self.inputs_are_many else 0

    def images_at_once(self, held=1):
        """Return the images per slice; `held` scales the memory of a forward step."""
        per_capsule = max(self._group * self.many_dim, self.few // 4, self.many_dim**2 // 8)
        per_image = self.many * per_capsule
        return max(1, at_once(BLOCK) // (held * per_image))

    def split(self, tensor):
        """Return a tensor (F, ...) as a list of groups (group, ...)."""
        if self.few == self._group:
            return [tensor]
        if self.few % self._group:
            return ops.split(tensor, list(range(self._group, self.few, self._group)), axis=0)
        # An int makes one operation in TensorFlow's graphs instead of two dozen.
        return ops.split(tensor, self.few // self._group, axis=0)

    def lay_inputs(self, x):
        """Convert inputs (B, I, D) to the layout of their side."""
        return ops.transpose(x, (0, 2, 1) if self.inputs_are_many else (1, 0, 2))

    def lay_outputs(self, y):
        """Convert outputs (B, J, E) to the layout of their side."""
        return ops.transpose(y, (1, 0, 2) if self.inputs_are_many else (0, 2, 1))

    # The permutations are their own inverses.
    unlay_inputs, unlay_outputs = lay_inputs, lay_outputs

    def lay_pairs(self, c):
        """Convert pairs (B, I, J) to blocks `(group, B, 1, M)`."""
        c = ops.transpose(c, (2, 0, 1) if self.inputs_are_many else (1, 0, 2))
        return self.split(c[:, :, None])

    def unlay_pairs(self, blocks):
        """Convert blocks `(group, B, 1, M)` or `EqualPairs` to pairs (B, I, J)."""
        if isinstance(blocks, EqualPairs):
            c = ops.broadcast_to(blocks.share, (self.few, blocks.images, self.many))
        else:
            c = ops.squeeze(ops.concatenate(blocks, axis=0), axis=2)
        return ops.transpose(c, (1, 2, 0) if self.inputs_are_many else (1, 0, 2))

    def unlay_maps(self, blocks):
        """Convert blocks of maps (group, P, R*M) to a kernel (I, J, E, D)."""
        maps = ops.concatenate(blocks, axis=0)
        maps = ops.reshape(maps, (self.few, self.few_dim, self.many_dim, self.many))
        return ops.transpose(maps, [self._order.index(axis) for axis in range(4)])

    def lay_numbers(self, values):
        """Return values (J,) in a shape that broadcasts to values per image and output."""
        return values[:, None] if self.inputs_are_many else values[None]

    def sum_over_inputs(self, blocks):
        """Sum blocks `(group, B, 1, M)` over the inputs."""
        if self.inputs_are_many:
            return ops.concatenate([ops.sum(block, axis=(2, 3)) for block in blocks], axis=0)
        return sum(ops.sum(block, axis=(0, 2)) for block in blocks)

    def equal_pairs(self, share, x):
        """Return `EqualPairs` c_ij = share_j, with `share` from `lay_numbers`."""
        images = ops.shape(x)[0 if self.inputs_are_many else 1]
        return EqualPairs(ops.expand_dims(share, self.output_axis), images)

    def add_to_outputs(self, blocks, values):
        """Add values per image and output to blocks."""
        if self.inputs_are_many:
            spread = self.split(values[:, :, None, None])
        else:
            spread = [values[None, :, None]] * len(self._blocks)
        return [block + value for block, value in zip(blocks, spread)]

    def softmax(self, logits, softmax_over, scale, leaky=False):
        """Return `scale` times the softmax; `leaky` adds a logit of zero and drops its share."""
        largest = self._over(logits, softmax_over, _largest, ops.maximum)
        if leaky:
            largest = [ops.maximum(most, 0) for most in largest]
        powers = [ops.exp(block - most) for block, most in zip(logits, largest)]
        totals = self.totals(powers, softmax_over)
        if leaky:
            totals = [total + ops.exp(-most) for total, most in zip(totals, largest)]
        return [power * (scale / total) for power, total in zip(powers, totals)]

    def totals(self, blocks, softmax_over):
        """Return sums over the inputs or the outputs, as a list that broadcasts to the blocks."""
        return self._over(blocks, softmax_over, ops.sum, ops.add)

    def _over(self, blocks, softmax_over, within, between):
        if (softmax_over == "inputs") == self.inputs_are_many:
            return [within(block, axis=3, keepdims=True) for block in blocks]
        if self._group > 1:
            blocks = [within(block, axis=0, keepdims=True) for block in blocks]
        return [reduce(between, blocks)] * len(blocks)

    def up(self, c, x):
        """Return the pre-activations z_j = sum_i c_ij W_ij x_i."""
        if isinstance(c, EqualPairs):
            return self.equal_up(x) * c.share
        return self._to_few(c, x) if self.inputs_are_many else self._to_many(c, x)

    def down(self, c, y):
        """Return the pre-activations z~_i = sum_j c_ij W_ij^T y_j."""
        if isinstance(c, EqualPairs):
            return self.equal_down(y * c.share)
        return self._to_many(c, y) if self.inputs_are_many else self._to_few(c, y)

    def agreements(self, kind):
        """Return the `BlockAgreement` of the given kind."""
        return BlockAgreement(self, kind)

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

    def equal_up(self, x):
        """Return sum_i W_ij x_i."""
        return self._all_to_few(x) if self.inputs_are_many else self._all_to_many(x)

    def equal_down(self, y):
        """Return sum_j W_ij^T y_j."""
        return self._all_to_many(y) if self.inputs_are_many else self._all_to_few(y)

    def equal_correlation(self, y, x):
        """Return sum_b y_j x_i^T over images b, as blocks of maps (group, P, R*M)."""
        few, many = (y, x) if self.inputs_are_many else (x, y)
        many = ops.reshape(many, (-1, self.flat_shape[2]))
        sums = ops.matmul(ops.transpose(self._few_rows(few)), many)
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
