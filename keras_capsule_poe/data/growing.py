"""Resumable `.npy` files that grow by rows."""

import os
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from keras_capsule_poe.errors import DataError
from keras_capsule_poe.io.leftovers import temporary_path

_BLOCK = 4096


class GrowingRows:
    """Writer of an `.npy` file with a fixed number of rows, appended in blocks."""

    def __init__(self, path, rows, like):
        self.path, self.rows = path, rows
        self._create(like.shape[1:], like.dtype)

    def _create(self, shape, dtype):
        self.shape, self.dtype = tuple(shape), dtype
        # No memory map: writing to one on a full disk kills the process instead of raising.
        self.file = open(self.path, "w+b", buffering=0)
        about = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False}
        npy.write_array_header_1_0(self.file, {**about, "shape": (self.rows, *shape)})
        self.offset = self.file.tell()

    @classmethod
    def resume(cls, path, done):
        """Reopen a file after its first `done` rows; drop the rows after them."""
        self = cls.__new__(cls)
        self.path, self.file = path, open(path, "r+b", buffering=0)
        try:
            self._go_on(done)
        except BaseException:
            self.close()
            raise
        return self

    def _go_on(self, done):
        if npy.read_magic(self.file) != (1, 0):
            raise ValueError(f"{self.path} is of another version")
        (self.rows, *shape), _, self.dtype = npy.read_array_header_1_0(self.file)
        self.shape, self.offset = tuple(shape), self.file.tell()
        end = self.offset + done * self._row_bytes
        if os.fstat(self.file.fileno()).st_size < end:
            raise ValueError(f"{self.path} has fewer than {done} rows")
        self.file.seek(end)
        self.file.truncate()

    @property
    def _row_bytes(self):
        return int(np.prod(self.shape, dtype=int)) * self.dtype.itemsize

    def append(self, part):
        """Append rows (B, ...); a grey file becomes RGB at its first RGB rows."""
        if part.shape[1:] != self.shape:
            part = self._fit(part)
        left = np.ascontiguousarray(part, self.dtype).reshape(-1).view("uint8").data
        while len(left):
            left = left[self.file.write(left) :]

    def _fit(self, part):
        shape = part.shape[1:]
        channels = {shape[-1:], self.shape[-1:]}
        if shape[:-1] != self.shape[:-1] or channels != {(1,), (3,)}:
            sizes = ("x".join(map(str, size)) for size in (self.shape, shape))
            raise DataError(
                "all images must have the same size, unless `image_size` is given. "
                f"Received: {' and '.join(sizes)}.",
                mend="image_size",
            )
        if shape[-1] == 1:
            return np.repeat(part, 3, axis=-1)
        self._colour()
        return part

    def _colour(self):
        """Rewrite all grey rows as RGB, then replace the file atomically."""
        done = (self.file.tell() - self.offset) // self._row_bytes
        grey = np.memmap(self.path, self.dtype, "r", self.offset, (done, *self.shape))
        with temporary_path(Path(self.path)) as beside:
            rgb = GrowingRows(beside, self.rows, np.empty((0, *self.shape[:-1], 3), self.dtype))
            try:
                for start in range(0, done, _BLOCK):
                    rgb.append(np.repeat(grey[start : start + _BLOCK], 3, axis=-1))
                rgb.sync()
                os.replace(beside, self.path)
            except BaseException:
                rgb.close()
                raise
        self.close()
        self.shape, self.offset, self.file = rgb.shape, rgb.offset, rgb.file

    def sync(self):
        """Flush the written rows to disk."""
        os.fsync(self.file.fileno())

    def close(self):
        self.file.close()
