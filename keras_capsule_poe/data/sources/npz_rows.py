"""Blockwise reading of arrays in an `.npz` archive."""

import contextlib
import zipfile

import numpy as np
from numpy.lib import format as npy

from keras_capsule_poe.data.pixels import check_memory
from keras_capsule_poe.errors import DataError, first_line

# Size of a block. Two blocks are in memory while the next one is read.
_BYTES = 2**22


class Member:
    """Array in an `.npz` archive that is read in blocks of rows."""

    def __init__(self, path, name):
        self.path, self.name = path, name
        with self._open() as (_, shape, dtype, by_columns):
            self.shape, self.dtype, self.by_columns = shape, dtype, by_columns
        self.ndim, self.size = len(shape), int(np.prod(shape))

    @contextlib.contextmanager
    def _open(self):
        """Open the member's data after its header; yield file, shape, dtype and order."""
        with reading(self.path), zipfile.ZipFile(self.path) as archive:
            with archive.open(f"{self.name}.npy") as file:
                version = npy.read_magic(file)
                header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
                shape, by_columns, dtype = header[version](file)
                if dtype.hasobject:
                    raise ValueError(f"{self.name} holds objects")
                yield file, shape, dtype, by_columns

    def blocks(self, first=0):
        """Iterate over blocks (B, ...) of rows from row `first` on."""
        row = int(np.prod(self.shape[1:], dtype=int)) * self.dtype.itemsize
        at_once = max(1, _BYTES // max(row, 1))
        if self.by_columns:
            # In Fortran order, rows are not contiguous.
            size = self.size * self.dtype.itemsize
            check_memory(f"the array {self.name} of {self.path}, in Fortran order,", size)
            with reading(self.path), np.load(self.path) as archive:
                whole = archive[self.name]
                for start in range(first, len(whole), at_once):
                    yield whole[start : start + at_once]
            return
        with self._open() as (file, shape, dtype, _):
            file.seek(first * row, 1)
            for start in range(first, shape[0], at_once):
                rows = min(at_once, shape[0] - start)
                read = file.read(rows * row)
                yield np.frombuffer(read, dtype).reshape(rows, *shape[1:])


@contextlib.contextmanager
def reading(path):
    """Convert every error of a damaged archive to a `DataError`."""
    try:
        yield
    except DataError:
        raise
    # NumPy does not wrap the errors of its parsers.
    except Exception as error:
        raise DataError(
            f"{path} cannot be read as an .npz archive of plain arrays: it is damaged or of "
            f"another kind ({first_line(error)})."
        ) from error
