"""Views of rows of long arrays."""

import numpy as np


class RowView:
    """Lazy view of rows of an array (M, ...), read only when indexed or converted."""

    def __init__(self, rows, index):
        self.rows, self.index = rows, index

    @property
    def shape(self):
        return (len(self.index), *self.rows.shape[1:])

    @property
    def dtype(self):
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
    """Return `rows[index]`, without a copy if the rows lie on disk."""
    if isinstance(index, slice) or not isinstance(rows, (np.memmap, RowView)):
        return rows[index]
    index = np.flatnonzero(index) if np.asarray(index).dtype == bool else np.asarray(index)
    if isinstance(rows, RowView):
        return RowView(rows.rows, rows.index[index])
    return RowView(rows, index)


def spread(n, most):
    """Return at most `most` evenly spaced indices of `n` rows."""
    kept = min(n, most)
    return np.arange(kept) * n // max(kept, 1)
