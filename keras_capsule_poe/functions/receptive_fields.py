"""Receptive fields of capsule convolutions: the child places that each parent place sees."""

import numpy as np
from keras import ops

from keras_capsule_poe.functions.checks import whole_number


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

    def __init__(self, height, width, kernel_size=None, strides=1):
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
