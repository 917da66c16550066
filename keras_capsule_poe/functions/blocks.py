"""Sums over all pairs of capsules of two layers, as large products over blocks.

A vote W_ij x_i is never stored. With c_ij the routing coefficients, every sum that routing and
contrastive divergence need is a product of W with something smaller:

    sum_i c_ij W_ij x_i   =  (c_ij x_i, all i side by side)  times  W_j        collective
    y_j . W_ij x_i        =  x_i . (W_ij^T y_j)                                agreement
    sum_j c_ij W_ij^T y_j =  (W_ij^T y_j), weighted and added up               backprojection
    sum_b c_ij y_j x_i^T  =  y_j^T  times  (c_ij x_i, all i side by side)      correlation

The layer with fewer capsules is taken one capsule (or one group) at a time, so that the product
runs over all the capsules of the other layer at once. What is stored per pair is a vector on the
side with many capsules, whose vectors are usually the shorter ones (8 numbers instead of 16).

Shapes: B images; I input capsules of D dimensions, J output capsules of E dimensions; seen the
other way, F capsules of P dimensions on the side with few, M of R on the side with many.
Vectors lie as (F, B, P) on the first side and as (B, R, M) on the second, coefficients as
(F, B, M): long rows over M, which element-wise work runs through fast.
"""

import numpy as np
from keras import backend, ops

from keras_capsule_poe.functions.norms import direction

# Groups, at most, into which the side with few capsules is cut: more only make the graph larger.
_MOST_GROUPS = 32
# Numbers that one intermediate tensor may hold; 4 MiB in float32, to stay in the cache.
_BLOCK = 1 << 20


class PairSums:
    """Sums over pairs of capsules for one set of prediction maps.

    Args:
        kernel: Tensor (I, J, E, D), prediction maps W_ij.
    """

    def __init__(self, kernel):
        self.inputs, self.outputs = kernel.shape[:2]
        self.inputs_are_many = self.inputs >= self.outputs
        # (F, P, R, M): the vectors of both sides in the middle, many capsules along the rows.
        self._order = (1, 2, 3, 0) if self.inputs_are_many else (0, 3, 2, 1)
        self.maps = ops.transpose(kernel, self._order)
        self.few, self.few_dim, self.many_dim, self.many = self.maps.shape
        self._group = -(-self.few // _MOST_GROUPS)
        self.flat_shape = (self.few, self.few_dim, self.many_dim * self.many)
        self._blocks = self.split(self.flat(self.maps))
        # Where the vectors lie in the layouts of the two sides.
        self.input_axis, self.output_axis = (1, 2) if self.inputs_are_many else (2, 1)

    def images_at_once(self):
        """How many images to take at a time, so that memory does not grow with the batch."""
        per_image = self.many * max(self._group * self.many_dim, self.few // 4)
        return max(1, _BLOCK // per_image)

    # Layouts

    def split(self, tensor):
        """Groups of capsules of the few: a list of tensors (group, ...)."""
        return [tensor[f : f + self._group] for f in range(0, self.few, self._group)]

    def lay_inputs(self, x):
        """(B, I, D) to the layout of its side."""
        return ops.transpose(x, (0, 2, 1) if self.inputs_are_many else (1, 0, 2))

    def lay_outputs(self, y):
        """(B, J, E) to the layout of its side."""
        return ops.transpose(y, (1, 0, 2) if self.inputs_are_many else (0, 2, 1))

    # Both permutations are their own inverse.
    unlay_inputs, unlay_outputs = lay_inputs, lay_outputs

    def lay_coefficients(self, c):
        """(B, I, J) to a list of (group, B, M)."""
        return self.split(ops.transpose(c, (2, 0, 1) if self.inputs_are_many else (1, 0, 2)))

    def unlay_coefficients(self, blocks):
        """A list of (group, B, M) to (B, I, J)."""
        order = (1, 2, 0) if self.inputs_are_many else (1, 0, 2)
        return ops.transpose(ops.concatenate(blocks, axis=0), order)

    def unlay_kernel(self, maps):
        """(F, P, R*M) to (I, J, E, D)."""
        maps = ops.reshape(maps, (self.few, self.few_dim, self.many_dim, self.many))
        return ops.transpose(maps, [self._order.index(axis) for axis in range(4)])

    def per_output(self, values):
        """Numbers (J,) to the layout of the outputs without their vectors."""
        return values[:, None] if self.inputs_are_many else values[None]

    def equal_blocks(self, shares, x):
        """Coefficients that depend on the output alone, from `per_output`, as (group, B, M)."""
        images = ops.shape(x)[0 if self.inputs_are_many else 1]
        shape = (self.few, images, self.many)
        return self.split(ops.broadcast_to(ops.expand_dims(shares, self.output_axis), shape))

    def output_blocks(self, values):
        """Numbers per image and output, laid out, to a list that fits blocks of (group, B, M)."""
        if self.inputs_are_many:
            return self.split(values[:, :, None])
        return [values[None]] * len(self._blocks)

    # Sums over pairs; x and y in the layouts of their sides, c as a list of (group, B, M)

    def collective(self, c, x):
        """z_j = sum_i c_ij W_ij x_i, in the layout of the outputs."""
        return self._to_few(c, x) if self.inputs_are_many else self._to_many(c, x)

    def backproject(self, c, y):
        """z~_i = sum_j c_ij W_ij^T y_j, in the layout of the inputs."""
        return self._to_many(c, y) if self.inputs_are_many else self._to_few(c, y)

    def total(self, x):
        """sum_i W_ij x_i, in the layout of the outputs: the collective of equal coefficients."""
        maps = ops.reshape(self.maps, (self.few * self.few_dim, self.many_dim * self.many))
        if self.inputs_are_many:
            z = ops.matmul(self._rows(x), ops.transpose(maps))
            z = ops.reshape(z, (-1, self.few, self.few_dim))
            return ops.transpose(z, (1, 0, 2))
        x = ops.reshape(ops.transpose(x, (1, 0, 2)), (-1, self.few * self.few_dim))
        return ops.reshape(ops.matmul(x, maps), (-1, self.many_dim, self.many))

    def correlation(self, c, y, x):
        """sum over images of c_ij y_j x_i^T, as (F, P, R*M)."""
        few, many = (y, x) if self.inputs_are_many else (x, y)
        sums = [
            ops.matmul(ops.transpose(f, (0, 2, 1)), self._weighted(block, many))
            for block, f in zip(c, self.split(few))
        ]
        return ops.concatenate(sums, axis=0)

    def agreement(self, y, x, blocks=None):
        """y_j . W_ij x_i, as a list of (group, B, M); `blocks` in place of the maps W."""
        few, many = (y, x) if self.inputs_are_many else (x, y)
        return [
            ops.sum(self.products(f, maps) * many, axis=2)
            for f, maps in zip(self.split(few), blocks or self._blocks)
        ]

    # The same, by few and many

    def _to_few(self, c, many):
        sums = [
            ops.matmul(self._weighted(block, many), ops.transpose(maps, (0, 2, 1)))
            for block, maps in zip(c, self._blocks)
        ]
        return ops.concatenate(sums, axis=0)

    def _to_many(self, c, few):
        total = 0.0
        for block, f, maps in zip(c, self.split(few), self._blocks):
            weighted = block[:, :, None, :] * self.products(f, maps)
            total = total + (weighted[0] if self._group == 1 else ops.sum(weighted, axis=0))
        return total

    def products(self, few, maps):
        """(group, B, P) times the maps of a group: (group, B, R, M)."""
        products = ops.matmul(few, maps)
        return ops.reshape(products, (*ops.shape(products)[:2], self.many_dim, self.many))

    def _weighted(self, block, many):
        """c (group, B, M) times vectors (B, R, M): (group, B, R*M)."""
        return self.flat(block[:, :, None, :] * many)

    def flat(self, tensor):
        """(F, B, R, M) to (F, B, R*M)."""
        return ops.reshape(tensor, (*ops.shape(tensor)[:2], self.many_dim * self.many))

    def _rows(self, many):
        """(B, R, M) to (B, R*M)."""
        return ops.reshape(many, (-1, self.many_dim * self.many))


class Cosines:
    """Cosines between votes and any vectors.

    The lengths of the votes depend on x and W alone, so they are found once for all iterations.
    Maps and inputs are taken in units of their own size, so that no square leaves the range of
    floats; a vote shorter than rounding counts as zero.

    Args:
        pairs: `PairSums` of the maps.
    """

    def __init__(self, pairs):
        self._pairs = pairs
        largest = ops.max(ops.abs(pairs.maps), axis=(1, 2), keepdims=True)
        unit = pairs.maps / ops.where(ops.equal(largest, 0), ops.ones_like(largest), largest)
        self._blocks = pairs.split(pairs.flat(unit))
        if pairs.inputs_are_many:
            # W^T W, each pair of dimensions once: (M, F, R(R+1)/2).
            products = [
                _doubled(ops.sum(unit[:, :, d:] * unit[:, :, d : d + 1], axis=1))
                for d in range(pairs.many_dim)
            ]
            self._gram = ops.transpose(ops.concatenate(products, axis=1), (2, 0, 1))

    def of(self, x):
        """The function that gives y_j . W_ij x_i / |W_ij x_i| of y, as a list of (group, B, M)."""
        x = direction(x, axis=self._pairs.input_axis)
        floor = float(np.finfo(backend.standardize_dtype(x.dtype)).eps) ** 2
        inverse = [ops.rsqrt(ops.maximum(square, floor)) for square in self._squares(x)]

        def cosines(y):
            agreements = self._pairs.agreement(y, x, self._blocks)
            return [agreement * n for agreement, n in zip(agreements, inverse)]

        return cosines

    def _squares(self, x):
        """|W_ij x_i|^2, as a list of (group, B, M)."""
        if not self._pairs.inputs_are_many:
            return [
                ops.sum(ops.square(self._pairs.products(few, maps)), axis=2)
                for few, maps in zip(self._pairs.split(x), self._blocks)
            ]
        # x_i^T (W_ij^T W_ij) x_i, with images along the rows.
        x = ops.transpose(x, (2, 1, 0))
        products = [x[:, d:] * x[:, d : d + 1] for d in range(self._pairs.many_dim)]
        squares = ops.matmul(self._gram, ops.concatenate(products, axis=1))
        return self._pairs.split(ops.transpose(squares, (1, 2, 0)))


def _doubled(products):
    """(F, R - d, M), products of dimension d with itself and those after it, these twice."""
    return ops.concatenate([products[:, :1], 2 * products[:, 1:]], axis=1)


def over_images(step, arrays, at_once, stacked, summed):
    """Runs `step` on a few images at a time.

    Args:
        step: Takes a slice of each array, and the weight (n, 1) of each image in sums; gives a list of
            per-image results and a list of sums over images.
        arrays: Tensors (B, ...).
        at_once: int, images in a slice, at most.
        stacked: Shapes, without B, of the per-image results.
        summed: Shapes of the sums.

    Returns:
        The per-image results of the whole batch and the sums over it.
    """
    size, dtype = ops.shape(arrays[0])[0], arrays[0].dtype
    if isinstance(size, int) and size <= at_once:
        return step(*arrays, ops.ones((size, 1), dtype=dtype))
    slices = (size + at_once - 1) // at_once
    length = (size + slices - 1) // slices

    def body(done, results, sums):
        # The last slice overlaps the one before, so that all have one length; images that
        # were counted already have weight zero.
        start = ops.minimum(done, size - length)
        where = start + ops.arange(length)
        counts = ops.cast(where >= done, dtype)[:, None]
        new, added = step(*(ops.take(array, where, axis=0) for array in arrays), counts)
        results = [ops.scatter_update(r, where[:, None], n) for r, n in zip(results, new)]
        return done + length, results, [s + a for s, a in zip(sums, added)]

    start = (
        0,
        [ops.zeros((size, *shape), dtype=dtype) for shape in stacked],
        [ops.zeros(shape, dtype=dtype) for shape in summed],
    )
    return ops.while_loop(lambda done, *_: done < size, body, start)[1:]
