"""Rows of a long array that stays where it is, by their numbers."""

import numpy as np


class RowView:
    """Some rows of an array, in some order; nothing is read or copied before it is asked for.

    It has `shape`, `dtype`, `len` and what `batches` and `map_batches` ask of an array, and turns
    into one where NumPy wants one. A slice of it is another view.

    Args:
        rows: Array (M, ...), mostly a memory-mapped one.
        index: Integer array (N,), numbers of rows.

    Examples:

    >>> view = RowView(np.arange(10) ** 2, np.array([5, 3, 1]))
    >>> view.shape, int(view[1]), np.asarray(view[1:]).tolist(), view[np.array([2, 0])].tolist()
    ((3,), 9, [9, 1], [1, 25])
    """

    def __init__(self, rows, index):
        self.rows, self.index = rows, index

    @property
    def shape(self):
        """Tuple of int."""
        return (len(self.index), *self.rows.shape[1:])

    @property
    def dtype(self):
        """Of the rows."""
        return self.rows.dtype

    def __len__(self):
        return len(self.index)

    def __getitem__(self, key):
        if isinstance(key, tuple):
            rows, *inside = key
            return RowView(self.rows[(slice(None), *inside)], self.index)[rows]
        if isinstance(key, slice):
            return RowView(self.rows, self.index[key])
        return self.rows[self.index[key]]

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.rows[self.index], dtype)


def view(rows, index):
    """`rows[index]`, without a copy where the rows lie on disk.

    Args:
        rows: Array (M, ...), a memory-mapped one, or a `RowView`.
        index: Slice, or integer or boolean array.

    Examples:

    >>> view(np.arange(4), np.array([3, 0])).tolist()
    [3, 0]
    """
    if isinstance(index, slice) or not isinstance(rows, (np.memmap, RowView)):
        return rows[index]
    index = np.flatnonzero(index) if np.asarray(index).dtype == bool else np.asarray(index)
    if isinstance(rows, RowView):
        return RowView(rows.rows, rows.index[index])
    return RowView(rows, index)


def spread(n, most):
    """Numbers of at most `most` of `n` rows, evenly spread over them; all where there are fewer.

    Examples:

    >>> spread(10, 3).tolist(), spread(2, 3).tolist()
    ([0, 3, 6], [0, 1])
    """
    kept = min(n, most)
    return np.arange(kept) * n // max(kept, 1)
