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

from keras import ops

# Groups, at most, into which the side with few capsules is cut: more make the graph larger.
_MOST_GROUPS = 32
# Numbers, about, in one intermediate tensor: 8 MiB in float32, to stay in a cache.
_BLOCK = 1 << 21


class PairSums:
    """Sums over pairs of capsules for one set of prediction maps.

    Args:
        kernel: Tensor (I, J, E, D), prediction maps W_ij.
    """

    def __init__(self, kernel):
        self.kernel = kernel
        self.inputs, self.outputs, out_dim, in_dim = kernel.shape
        # Votes of few dimensions are often much shorter than W and x; their lengths then need
        # the votes' own side as the side with many.
        self.inputs_are_many = self.inputs >= self.outputs and out_dim >= max(in_dim, 8)
        # (F, P, R, M): the vectors of both sides in the middle, many capsules along the rows.
        self._order = (1, 2, 3, 0) if self.inputs_are_many else (0, 3, 2, 1)
        maps = ops.transpose(kernel, self._order)
        self.few, self.few_dim, self.many_dim, self.many = maps.shape
        self._group = -(-self.few // _MOST_GROUPS)
        self._flat_maps = ops.reshape(maps, (self.few, self.few_dim, -1))
        self.flat_shape = tuple(self._flat_maps.shape)
        self._blocks = self.split(self._flat_maps)
        self.map_shapes = [tuple(block.shape) for block in self._blocks]
        # Where the vectors are in the layouts of the two sides.
        self.input_axis, self.output_axis = (1, 2) if self.inputs_are_many else (2, 1)

    def images_at_once(self, held=1):
        """How many images to take at a time, so that memory grows with neither B nor I J.

        Args:
            held: How many times as much as in a forward step is held at once.
        """
        per_capsule = max(self._group * self.many_dim, self.few // 4, self.many_dim**2 // 8)
        per_image = self.many * per_capsule
        return max(1, _BLOCK // (held * per_image))

    # Layouts

    def split(self, tensor):
        """Groups of the few, as a list of tensors (group, ...)."""
        if self.few == 1:
            return [tensor]
        return ops.split(tensor, list(range(self._group, self.few, self._group)), axis=0)

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
        """Blocks (group, B, 1, M) to (B, I, J)."""
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

    def spread_numbers(self, values):
        """Numbers per image and output, laid out, to a list that fits blocks (group, B, 1, M)."""
        if self.inputs_are_many:
            return self.split(values[:, :, None, None])
        return [values[None, :, None]] * len(self._blocks)

    def sum_over_inputs(self, blocks):
        """Blocks (group, B, 1, M) to numbers per image and output, laid out."""
        if self.inputs_are_many:
            return ops.concatenate([ops.sum(block, axis=(2, 3)) for block in blocks], axis=0)
        return sum(ops.sum(block, axis=(0, 2)) for block in blocks)

    # Sums over pairs; x and y in the layouts of their sides, c as blocks (group, B, 1, M)

    def collective(self, c, x):
        """z_j = sum_i c_ij W_ij x_i, laid out."""
        return self._to_few(c, x) if self.inputs_are_many else self._to_many(c, x)

    def backproject(self, c, y):
        """z~_i = sum_j c_ij W_ij^T y_j, laid out."""
        return self._to_many(c, y) if self.inputs_are_many else self._to_few(c, y)

    def agreement(self, y, x):
        """y_j . W_ij x_i, as blocks (group, B, 1, M)."""
        few, many = (y, x) if self.inputs_are_many else (x, y)
        return [ops.sum(p * many, axis=2, keepdims=True) for p in self.products(few)]

    def correlation(self, c, y, x):
        """The sum over images of c_ij y_j x_i^T, as blocks of maps (group, P, R*M)."""
        few, many = (y, x) if self.inputs_are_many else (x, y)
        return [
            ops.matmul(ops.transpose(f, (0, 2, 1)), self.flat(block * many))
            for block, f in zip(c, self.split(few))
        ]

    # The same with all c_ij = 1, each a single product

    def equal_collective(self, x):
        """sum_i W_ij x_i, laid out."""
        return self._all_to_few(x) if self.inputs_are_many else self._all_to_many(x)

    def equal_backproject(self, y):
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
        total = 0.0
        for block, products in zip(c, self.products(few)):
            weighted = block * products
            total = total + (weighted[0] if self._group == 1 else ops.sum(weighted, axis=0))
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


def over_images(step, arrays, at_once, results, sums):
    """Runs `step` on a few images at a time.

    The last images are made up with zeros, for which `step` must add nothing to the sums.

    Args:
        step: Takes a slice of each array; gives a list of per-image results and a list of sums.
        arrays: List of tensors (B, ...).
        at_once: int, images in a slice, at most.
        results: Shapes, without B, of the per-image results.
        sums: Shapes of the sums.

    Returns:
        List of the per-image results of the whole batch, list of the sums over it.
    """
    size, dtype = ops.shape(arrays[0])[0], arrays[0].dtype
    if isinstance(size, int) and size <= at_once:
        return step(*arrays)
    slices = (size + at_once - 1) // at_once
    slices = slices if isinstance(size, int) else ops.maximum(slices, 1)
    length = (size + slices - 1) // slices

    def body(done, totals, added):
        where = done + ops.arange(length)
        within = ops.cast(where < size, dtype)
        taken = [ops.take(a, ops.minimum(where, size - 1), axis=0) for a in arrays]
        taken = [a * ops.reshape(within, (-1,) + (1,) * (len(a.shape) - 1)) for a in taken]
        new, more = step(*taken)
        totals = [ops.scatter_update(t, where[:, None], n) for t, n in zip(totals, new)]
        added = [a + m for a, m in zip(added, more)]
        # Waiting for this slice's numbers keeps TensorFlow from running many slices side by side,
        # which would take the memory of all of them.
        numbers = [ops.ravel(result)[0] for result in (*new[:1], *added[-1:])]
        waited = sum(ops.cast(ops.isnan(number), done.dtype) // 2 for number in numbers)
        return done + length + waited, totals, added

    whole = [ops.zeros((slices * length, *shape), dtype=dtype) for shape in results]
    start = (ops.zeros((), dtype="int32"), whole, [ops.zeros(shape, dtype=dtype) for shape in sums])
    _, whole, added = ops.while_loop(lambda done, *_: done < size, body, start)
    return [result[:size] for result in whole], added
