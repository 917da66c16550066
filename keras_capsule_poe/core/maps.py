"""Maps between two layers of capsules.

Maps have the methods `up`, `down`, `agreement` and `correlation`, for tensors in the layout of
the maps. `lay_...` converts tensors to this layout and `unlay_...` converts them back. `Agreement`
compares the same votes with several vectors.
`correlation` returns blocks of shapes `map_shapes`; `unlay_maps` joins them to a kernel.
"""

import numpy as np
from keras import ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.numerics import at_least_float32, direction, whole_number


class Identity:
    """Maps whose layout is that of the caller, and which take all images at once."""

    input_axis = output_axis = -1

    def images_at_once(self, held=1):
        """Return None: all images."""
        return None

    def lay_inputs(self, tensor):
        """Return the tensor itself."""
        return tensor

    lay_outputs = unlay_inputs = unlay_outputs = lay_pairs = unlay_pairs = lay_inputs

    def unlay_maps(self, blocks):
        """Return the only block."""
        return blocks[0]

    @property
    def form(self):
        """Class that makes such maps of a kernel."""
        return type(self)


class EinsumAgreement:
    """Agreement y_j . W_ij x_i, or y_j . W_ij x_i/|W_ij x_i| for `kind="cosine"`."""

    def __init__(self, maps, kind):
        self._maps = maps
        self._is_cosine = kind == "cosine"

    def measure(self, x):
        """Return the votes of x, or their directions for cosines."""
        votes = self._maps.votes(x)
        return direction(votes) if self._is_cosine else votes

    def of(self, votes, y):
        """Return the agreements (B, I, J) of y with the result of `measure`."""
        return ops.einsum("bije,bje->bij", votes, y)


class EinsumMaps(Identity):
    """Prediction maps W_ij, with an einsum for every sum (the reference implementation).

    These maps store all votes W_ij x_i. `BlockMaps` computes the same numbers in less memory.

    Args:
        kernel: Tensor (I, J, E, D), maps from I input capsules of D dimensions to J output
            capsules of E dimensions.

    Example:

    >>> maps = EinsumMaps(ops.ones((6, 5, 3, 4)))
    >>> x, c = ops.ones((2, 6, 4)), ops.ones((2, 6, 5))
    >>> maps.up(c, x).shape, maps.votes(x).shape
    (TensorShape([2, 5, 3]), TensorShape([2, 6, 5, 3]))

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Equation 2
    """

    Agreement = EinsumAgreement

    def __init__(self, kernel: Tensor) -> None:
        self.kernel = at_least_float32(kernel)
        self.inputs, self.outputs, self.out_dim, self.in_dim = ops.shape(self.kernel)
        self.input_shape = self.inputs, self.in_dim
        self.output_shape = self.outputs, self.out_dim
        self.map_shapes = [tuple(self.kernel.shape)]

    def votes(self, x):
        """Return the votes W_ij x_i, of shape (B, I, J, E)."""
        return ops.einsum("bid,ijed->bije", x, self.kernel)

    def up(self, c, x):
        """Return the pre-activations z_j = sum_i c_ij W_ij x_i, of shape (B, J, E)."""
        return ops.einsum("bij,bije->bje", c, self.votes(x))

    def down(self, c, y):
        """Return the pre-activations z~_i = sum_j c_ij W_ij^T y_j, of shape (B, I, D)."""
        return ops.einsum("bij,bijd->bid", c, ops.einsum("bje,ijed->bijd", y, self.kernel))

    def equal_up(self, x):
        """Return sum_i W_ij x_i, of shape (B, J, E)."""
        return ops.einsum("bid,ijed->bje", x, self.kernel)

    def agreement(self, y, x):
        """Return the inner products y_j . W_ij x_i, of shape (B, I, J)."""
        return ops.einsum("bije,bje->bij", self.votes(x), y)

    def correlation(self, c, y, x):
        """Return [sum_b c_ij y_j x_i^T], of shape (I, J, E, D), summed over images b."""
        weighted = ops.einsum("bij,bje->bije", c, y)
        return [ops.einsum("bije,bid->ijed", weighted, x)]

    def lay_numbers(self, values):
        """Return values (J,) in a shape that broadcasts to (B, J)."""
        return values[None]

    def equal_pairs(self, share, x):
        """Return coefficients (B, I, J) that are `share` (1, J) for every input."""
        return ops.broadcast_to(share[:, None], (ops.shape(x)[0], self.inputs, self.outputs))

    def add_to_outputs(self, pairs, values):
        """Add values (B, J) to pairs (B, I, J)."""
        return pairs + values[:, None]

    def softmax(self, logits, softmax_over, scale, leaky=False):
        """Return `scale` times the softmax; `leaky` adds a logit of zero and drops its share."""
        axis = 1 if softmax_over == "inputs" else 2
        if leaky:
            logits = ops.concatenate([logits, ops.zeros_like(logits[:, :, :1])], axis=2)
            return scale * ops.softmax(logits, axis=2)[:, :, :-1]
        if logits.shape[axis] == 1:  # Keras warns about a softmax over one value.
            return scale * ops.ones_like(logits)
        return scale * ops.softmax(logits, axis=axis)


class MaskedMaps(EinsumMaps):
    """`EinsumMaps` for a softmax over the inputs that are not padding, which differ by image.

    Args:
        kernel: Tensor (I, J, E, D), maps.
        mask: Boolean tensor (B, I), False for padding, whose inputs must be zero.
        is_mean: bool, whether the sum of the coefficients is the number of inputs.
    """

    def __init__(self, kernel, mask, is_mean):
        super().__init__(kernel)
        self.mask = ops.cast(mask, self.kernel.dtype)[:, :, None]
        kept = ops.maximum(ops.sum(self.mask, axis=1, keepdims=True), 1)
        inputs = ops.cast(ops.shape(self.mask)[1], kept.dtype)
        # `Router` counts the padding, too.
        self._sum = kept / inputs if is_mean else ops.ones_like(kept)
        self._share = self._sum * inputs / kept

    def equal_up(self, x):
        """Return the sum over inputs, multiplied for the number of inputs that count."""
        return self._share * super().equal_up(x)

    def equal_pairs(self, share, x):
        """Return equal coefficients, zero for padding."""
        return self._share * self.mask * super().equal_pairs(share, x)

    def softmax(self, logits, softmax_over, scale, leaky=False):
        """Return `scale` times the softmax over the inputs that count, zero for padding."""
        logits = ops.where(self.mask > 0, logits, -1e30)
        powers = ops.exp(logits - ops.max(logits, axis=1, keepdims=True)) * self.mask
        total = ops.maximum(ops.sum(powers, axis=1, keepdims=True), 1e-30)
        return scale * self._sum * powers / total


class DenseMaps(Identity):
    """A weight matrix between two layers of neurons, without routing (as in an RBM).

    It is the same as one capsule on each side with c = 1.

    Args:
        kernel: Tensor (E, D), from D visible to E hidden neurons.

    Example:

    >>> DenseMaps(ops.ones((3, 4))).up(None, ops.ones((2, 4))).shape
    TensorShape([2, 3])
    """

    def __init__(self, kernel: Tensor) -> None:
        self.kernel = at_least_float32(kernel)
        self.output_shape, self.input_shape = tuple((size,) for size in self.kernel.shape)
        self.map_shapes = [tuple(self.kernel.shape)]

    def up(self, c, x):
        """Return the pre-activations z = W x, of shape (B, E)."""
        return ops.matmul(x, ops.transpose(self.kernel))

    def down(self, c, y):
        """Return the pre-activations z~ = W^T y, of shape (B, D)."""
        return ops.matmul(y, self.kernel)

    def correlation(self, c, y, x):
        """Return [sum_b y x^T], of shape (E, D), summed over images b."""
        return [ops.matmul(ops.transpose(y), x)]


class ReceptiveFields:
    """Child places that each parent place sees: windows of a grid, or the whole grid.

    Args:
        height, width: int, size of the grid of children, in places.
        kernel_size: int, height and width of a window; None: one parent sees the whole grid.
        strides: int, distance between windows, in places.

    Attributes:
        shape: (h, w), the grid of the P = h w parents.
        children: int array (P, K), the K children in the window of each parent, row by row.
        windows: int array (N, L), for each of the N children its positions in the flattened
            `children`, padded with P K.
        parents: int array (N,), number of parents that see each child.

    Raises:
        ValueError: If an argument is invalid or the window is larger than the grid.

    Example:

    >>> fields = ReceptiveFields(3, 4, kernel_size=3)
    >>> fields.shape, fields.children.shape, fields.parents.reshape(3, 4)[0].tolist()
    ((1, 2), (2, 9), [1, 2, 2, 1])
    """

    def __init__(
        self, height: int, width: int, kernel_size: int | None = None, strides: int = 1
    ) -> None:
        height, width = whole_number("height", height), whole_number("width", width)
        strides = whole_number("strides", strides)
        rows, columns = height, width
        if kernel_size is not None:
            rows = columns = whole_number("kernel_size", kernel_size)
        if rows > height or columns > width:
            raise ValueError(
                "`kernel_size` must fit into the grid of children. Received: "
                f"kernel_size={kernel_size}, grid {height}x{width}"
            )
        self.grid = height, width
        self.shape = (height - rows) // strides + 1, (width - columns) // strides + 1
        places = np.arange(height * width).reshape(height, width)
        windows = np.lib.stride_tricks.sliding_window_view(places, (rows, columns))
        self.children = windows[::strides, ::strides].reshape(-1, rows * columns)
        seen = [np.flatnonzero(self.children == child) for child in places.ravel()]
        self.parents = np.array([len(each) for each in seen])
        self.windows = np.full((len(seen), max(self.parents)), self.children.size)
        for row, each in zip(self.windows, seen):
            row[: len(each)] = each

    def gather(self, children):
        """Return the children (B, P, K, ...) of each window, from a grid (B, N, ...)."""
        found = ops.take(children, self.children.ravel(), axis=1)
        return ops.reshape(found, (-1, *self.children.shape, *children.shape[2:]))

    def scatter(self, seen):
        """Return sums over windows (B, N, ...) of (B, P, K, ...), the transpose of `gather`."""
        shape = seen.shape[3:]
        flat = ops.reshape(seen, (-1, self.children.size, *shape))
        flat = ops.concatenate([flat, ops.zeros_like(flat[:, :1])], axis=1)
        of_child = ops.take(flat, self.windows.ravel(), axis=1)
        return ops.sum(ops.reshape(of_child, (-1, *self.windows.shape, *shape)), axis=2)

    def total(self, parts, between="all"):
        """Return the sums of (B, P, K, I, J) over all parents that `compete` for a child."""
        parts = ops.sum(parts, axis=-1, keepdims=True) if between == "all" else parts
        return self.gather(self.scatter(parts))

    def compete(self, logits, between="all"):
        """Return the softmax for each child over all parents that see it.

        Args:
            logits: Tensor (B, P, K, I, J), for child type i in a window and parent type j.
            between: `"all"`: parents of all types compete. `"places"`: only parents of one type
                at different places compete.

        Returns:
            Tensor of that shape, non-negative. For each child, it sums to one over all parents that
            compete.
        """
        return ops.exp(self.log_compete(logits, between))

    def log_compete(self, logits, between="all"):
        """Return the logarithm of `compete`, without underflow."""
        # Reduce over the types first, so that less is gathered.
        weights = ops.logsumexp(logits, axis=-1, keepdims=True) if between == "all" else logits
        flat = ops.reshape(weights, (-1, self.children.size, *weights.shape[3:]))
        none = ops.full_like(flat[:, :1], -np.inf)
        of_child = ops.take(ops.concatenate([flat, none], axis=1), self.windows.ravel(), axis=1)
        of_child = ops.reshape(of_child, (-1, *self.windows.shape, *weights.shape[3:]))
        # Children outside of all windows have no parents; their values are not used.
        highest = ops.max(of_child, axis=2, keepdims=True, initial=-1e30)
        total = ops.sum(ops.exp(of_child - highest), axis=2)
        total = highest[:, :, 0] + ops.log(ops.maximum(total, 1e-30))
        return logits - self.gather(total)
