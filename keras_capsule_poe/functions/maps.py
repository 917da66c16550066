"""Maps between two layers, and the sums over pairs of capsules that they stand for.

Routing and contrastive divergence ask maps for nothing else than

    up(c, x)              z_j  = sum_i c_ij W_ij x_i
    down(c, y)            z~_i = sum_j c_ij W_ij^T y_j
    agreements(kind)      y_j . W_ij x_i, or the cosine
    correlation(c, y, x)  sum_b c_ij y_j x_i^T

of tensors in the maps' own layout: `lay_inputs`, `lay_outputs`, `lay_pairs` lead there from
(B, I, D), (B, J, E) and (B, I, J), and `unlay_...` back. `correlation` gives a list of blocks,
of shapes `map_shapes`, that `unlay_maps` puts together in the shape of the kernel; they may be
added and subtracted before. `images_at_once` says how many images to take at a time.

Shapes: B images, I input capsules of D dimensions, J output capsules of E dimensions.
"""

from keras import ops

from keras_capsule_poe.functions.norms import at_least_float32, direction


class Identity:
    """Layouts in which everything stays as it is, and all images at once."""

    input_axis = output_axis = -1

    def images_at_once(self, held=1):
        """None: all."""
        return None

    def lay_inputs(self, tensor):
        """The tensor itself."""
        return tensor

    lay_outputs = unlay_inputs = unlay_outputs = lay_pairs = unlay_pairs = lay_inputs

    def unlay_maps(self, blocks):
        """The one block."""
        return blocks[0]


class EinsumMaps(Identity):
    """Prediction maps W_ij, every sum an einsum: the readable form, in which all votes are held.

    Args:
        kernel: Tensor (I, J, E, D), prediction maps W_ij.

    Examples:

    >>> maps = EinsumMaps(ops.ones((6, 5, 3, 4)))
    >>> x, c = ops.ones((2, 6, 4)), ops.ones((2, 6, 5))
    >>> maps.up(c, x).shape, maps.votes(x).shape
    (TensorShape([2, 5, 3]), TensorShape([2, 6, 5, 3]))
    """

    def __init__(self, kernel):
        self.kernel = at_least_float32(kernel)
        self.inputs, self.outputs, self.out_dim, self.in_dim = ops.shape(self.kernel)
        self.input_shape, self.output_shape = (
            (self.inputs, self.in_dim),
            (self.outputs, self.out_dim),
        )
        self.map_shapes = [tuple(self.kernel.shape)]

    def votes(self, x):
        """What each input capsule predicts for each output, W_ij x_i: (B, I, J, E).

        Reference:

        - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Equation 2
        """
        return ops.einsum("bid,ijed->bije", x, self.kernel)

    def up(self, c, x):
        """z_j = sum_i c_ij W_ij x_i: (B, J, E)."""
        return ops.einsum("bij,bije->bje", c, self.votes(x))

    def down(self, c, y):
        """z~_i = sum_j c_ij W_ij^T y_j: (B, I, D)."""
        return ops.einsum("bij,bijd->bid", c, ops.einsum("bje,ijed->bijd", y, self.kernel))

    def equal_up(self, x):
        """sum_i W_ij x_i: (B, J, E)."""
        return ops.einsum("bid,ijed->bje", x, self.kernel)

    def agreements(self, kind):
        """`EinsumAgreement` of `kind`."""
        return EinsumAgreement(self, kind)

    def correlation(self, c, y, x):
        """The sum over images of c_ij y_j x_i^T: [(I, J, E, D)]."""
        weighted = ops.einsum("bij,bje->bije", c, y)
        return [ops.einsum("bije,bid->ijed", weighted, x)]

    # Numbers per pair, (B, I, J), and per output

    def lay_numbers(self, values):
        """Numbers per output, (J,), to a shape that fits outputs, less their vectors."""
        return values[None]

    def equal_pairs(self, share, x):
        """The coefficients c_ij = share_j of all inputs; share (1, J)."""
        return ops.broadcast_to(share[:, None], (ops.shape(x)[0], self.inputs, self.outputs))

    def add_to_outputs(self, pairs, values):
        """Pairs with a number per image and output, (B, J), added."""
        return pairs + values[:, None]

    def softmax(self, logits, normalize, scale, leaky=False):
        """Softmax over the inputs or the outputs, maybe with a logit of zero, times `scale`."""
        axis = 1 if normalize == "inputs" else 2
        if leaky:
            logits = ops.concatenate([logits, ops.zeros_like(logits[:, :, :1])], axis=2)
            return scale * ops.softmax(logits, axis=2)[:, :, :-1]
        if logits.shape[axis] == 1:  # Keras warns of a softmax over one value
            return scale * ops.ones_like(logits)
        return scale * ops.softmax(logits, axis=axis)


class EinsumAgreement:
    """Agreement y_j . W_ij x_i, or with `kind="cosine"` y_j . W_ij x_i/|W_ij x_i|.

    Args:
        maps: `EinsumMaps`.
        kind: `"cosine"` or `"dot"`.
    """

    def __init__(self, maps, kind):
        self._maps = maps
        self._is_cosine = kind == "cosine"

    def measure(self, x):
        """The votes of x, or their directions."""
        votes = self._maps.votes(x)
        return direction(votes) if self._is_cosine else votes

    def of(self, votes, y):
        """Agreements of y with what `measure` gave: (B, I, J)."""
        return ops.einsum("bije,bje->bij", votes, y)


class DenseMaps(Identity):
    """One matrix between two layers of neurons, without routing: a Boltzmann machine's.

    The same as one capsule a side with c = 1.

    Args:
        kernel: Tensor (E, D), from D visible to E hidden neurons.

    Examples:

    >>> DenseMaps(ops.ones((3, 4))).up(None, ops.ones((2, 4))).shape
    TensorShape([2, 3])
    """

    def __init__(self, kernel):
        self.kernel = at_least_float32(kernel)
        self.output_shape, self.input_shape = tuple((size,) for size in self.kernel.shape)
        self.map_shapes = [tuple(self.kernel.shape)]

    def up(self, c, x):
        """z = W x: (B, E)."""
        return ops.matmul(x, ops.transpose(self.kernel))

    def down(self, c, y):
        """z~ = W^T y: (B, D)."""
        return ops.matmul(y, self.kernel)

    def correlation(self, c, y, x):
        """The sum over images of y x^T: [(E, D)]."""
        return [ops.matmul(ops.transpose(y), x)]
