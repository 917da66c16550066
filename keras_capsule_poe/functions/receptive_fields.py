"""Which places of a grid each place of a convolution sees, and by which places each is seen."""

import numpy as np
from keras import ops

from keras_capsule_poe.functions.checks import whole_number


class ReceptiveFields:
    """The places of a grid that each parent place sees: windows of K x K places, or the whole.

    Args:
        height, width: int, of the grid of the children.
        kernel_size: int, height and width of a window, in places; None: one parent sees all.
        strides: int, places from one window to the next.

    Attributes:
        shape: (h, w), the grid of the parents, of P = h w places.
        children: int array (P, K), which child place each parent sees at each of the K places of
            its window, row by row.
        windows: int array (N, L), for each of the N child places the windows that it lies in, as
            indices into the flat (P, K); P K where there is no further one.
        parents: int array (N,), how many parent places see each child.

    Raises:
        ValueError: If an argument is not as above or the window is larger than the grid.

    Examples:

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
        """What each window sees: of (B, N, ...) its places (B, P, K, ...)."""
        found = ops.take(children, self.children.ravel(), axis=1)
        return ops.reshape(found, (-1, *self.children.shape, *children.shape[2:]))

    def scatter(self, seen):
        """The transpose of `gather`: of (B, P, K, ...) the sums (B, N, ...) over all windows."""
        shape = seen.shape[3:]
        flat = ops.reshape(seen, (-1, self.children.size, *shape))
        flat = ops.concatenate([flat, ops.zeros_like(flat[:, :1])], axis=1)
        of_child = ops.take(flat, self.windows.ravel(), axis=1)
        return ops.sum(ops.reshape(of_child, (-1, *self.windows.shape, *shape)), axis=2)

    def total(self, parts, between="all"):
        """Sums over all that `compete` with each: tensors (B, P, K, I, J), or what broadcasts."""
        parts = ops.sum(parts, axis=-1, keepdims=True) if between == "all" else parts
        return self.gather(self.scatter(parts))

    def compete(self, logits, between="all"):
        """A softmax for each child, over all parents that see it.

        Args:
            logits: Tensor (B, P, K, I, J), of child type i at a place of a window and parent
                type j.
            between: `"all"`: parents of all types at all places; or `"places"`: those of one
                type, so that types do not compete.

        Returns:
            Tensor of that shape: non-negative, and for each child of one sum over all windows
            that it lies in (and over j).
        """
        return ops.exp(self.log_compete(logits, between))

    def log_compete(self, logits, between="all"):
        """Logarithms of what `compete` gives, of which none is too small to be told from zero."""
        # Types first: a window then holds one number of each child, or one of each pair.
        weights = ops.logsumexp(logits, axis=-1, keepdims=True) if between == "all" else logits
        flat = ops.reshape(weights, (-1, self.children.size, *weights.shape[3:]))
        none = ops.full_like(flat[:, :1], -np.inf)
        of_child = ops.take(ops.concatenate([flat, none], axis=1), self.windows.ravel(), axis=1)
        of_child = ops.reshape(of_child, (-1, *self.windows.shape, *weights.shape[3:]))
        # Children outside of all windows have no parents, and what becomes of them is not used.
        highest = ops.max(of_child, axis=2, keepdims=True, initial=-1e30)
        total = ops.sum(ops.exp(of_child - highest), axis=2)
        total = highest[:, :, 0] + ops.log(ops.maximum(total, 1e-30))
        return logits - self.gather(total)
