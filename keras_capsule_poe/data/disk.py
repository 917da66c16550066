"""Resumable writing of `.npy` files, row by row."""

import contextlib
import os
import time
import zlib
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from keras_capsule_poe.data.mapping import chunks
from keras_capsule_poe.errors import DataError, RunFailed
from keras_capsule_poe.io.atomic import temporary_path
from keras_capsule_poe.io.records import has_record, read_record, write_record

# Rows that turn RGB at once, and bytes that a checksum reads at once.
_BLOCK, _READ = 4096, 2**20


class ResumableArray:
    """Writer of an `.npy` file with a fixed number of rows, appended in blocks."""

    def __init__(self, path, rows, shape, dtype, has_checksum=False):
        self.path, self.rows, self.shape, self.dtype = path, rows, tuple(shape), np.dtype(dtype)
        # Not over an old file: a process that has mapped it would be killed.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        # No memory map: writing to one on a full disk kills the process instead of raising.
        self.file = open(path, "w+b", buffering=0)
        about = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False}
        npy.write_array_header_1_0(self.file, {**about, "shape": (rows, *shape)})
        self.offset = self.file.tell()
        self.checksum = _crc(path) if has_checksum else None

    @classmethod
    def resume(cls, path, done, checksum=None):
        """Reopen a file after its first `done` rows; raise ValueError if it does not hold them."""
        array = cls.__new__(cls)
        array.path, array.checksum = path, checksum
        with contextlib.ExitStack() as on_error:
            array.file = on_error.enter_context(open(path, "r+b", buffering=0))
            if npy.read_magic(array.file) != (1, 0):
                raise ValueError(f"{path} is of another version")
            (array.rows, *shape), _, array.dtype = npy.read_array_header_1_0(array.file)
            array.shape, array.offset = tuple(shape), array.file.tell()
            if array.file.seek(0, os.SEEK_END) < array._end(done):
                raise ValueError(f"{path} has fewer than {done} rows")
            array.file.truncate(array._end(done))
            array.file.seek(array._end(done))
            if checksum is not None and _crc(path) != checksum:
                raise ValueError(f"{path} does not hold what was written")
            on_error.pop_all()
        return array

    def _end(self, rows):
        return self.offset + rows * int(np.prod(self.shape, dtype=int)) * self.dtype.itemsize

    def append(self, part):
        """Append rows (B, ...); a grey file becomes RGB at its first RGB rows."""
        if part.shape[1:] != self.shape:
            part = self._fit(part)
        left = written = np.ascontiguousarray(part, self.dtype).reshape(-1).view("uint8").data
        while len(left):
            left = left[self.file.write(left) :]
        # The bytes in memory count: a faulty disk may return different ones.
        if self.checksum is not None:
            self.checksum = zlib.crc32(written, self.checksum)

    def _fit(self, part):
        shape = part.shape[1:]
        channels = {shape[-1:], self.shape[-1:]}
        if shape[:-1] != self.shape[:-1] or channels != {(1,), (3,)}:
            sizes = ("x".join(map(str, size)) for size in (self.shape, shape))
            raise DataError(
                "all images must have the same size, unless `image_size` is given. "
                f"Received: {' and '.join(sizes)}.",
                hint="image_size",
            )
        if shape[-1] == 1:
            return np.repeat(part, 3, axis=-1)
        self._to_rgb()
        return part

    def _to_rgb(self):
        """Rewrite all grey rows as RGB, then replace the file atomically."""
        done = (self.file.tell() - self.offset) // (self._end(1) - self.offset)
        grey = np.memmap(self.path, self.dtype, "r", self.offset, (done, *self.shape))
        with temporary_path(Path(self.path)) as path, contextlib.ExitStack() as on_error:
            shape, has_checksum = (*self.shape[:-1], 3), self.checksum is not None
            rgb = ResumableArray(path, self.rows, shape, self.dtype, has_checksum)
            on_error.callback(rgb.close)
            for part in chunks(grey, _BLOCK):
                rgb.append(np.repeat(part, 3, axis=-1))
            rgb.sync()
            os.replace(path, self.path)
            on_error.pop_all()
        self.close()
        self.__dict__.update(vars(rgb), path=self.path)

    def sync(self):
        """Flush the written rows to disk."""
        os.fsync(self.file.fileno())

    def close(self):
        self.file.close()


def _crc(path):
    """Return the CRC-32 of a file's bytes."""
    found = 0
    with open(path, "rb") as file:
        while block := file.read(_READ):
            found = zlib.crc32(block, found)
    return found


@contextlib.contextmanager
def resumable_arrays(progress, rows, seconds, target=None, hint=None):
    """Yield `ResumableArrays`; after an error, keep the rows so far for the next process."""
    arrays = ResumableArrays(progress, rows, seconds, target)
    try:
        progress.parent.mkdir(parents=True, exist_ok=True)
        arrays.resume()
        yield arrays
        arrays.finish()
    except BaseException as error:
        # ValueError: the files are closed, after the last save.
        with contextlib.suppress(OSError, RunFailed, ValueError):
            if arrays.done:
                arrays.save()
        if not isinstance(error, OSError):
            raise
        raise RunFailed(
            f"Cannot write {target or progress.parent}: {error.strerror or error}. {arrays.kept:,} "
            f"of {rows:,} rows are kept, and the same again goes on from there.",
            hint=hint,
        ) from error
    finally:
        arrays.close()


class ResumableArrays:
    """Named `.npy` files that grow together, and a record of their rows that are on disk."""

    def __init__(self, progress, rows, seconds, target=None):
        # The files lie beside the record `progress`, which is written about every `seconds`. With
        # `target` there is one file, which has a checksum and moves there when it is whole.
        self.progress, self.rows, self.seconds, self.target = progress, rows, seconds, target
        self.arrays, self.columns = {}, {}
        # Numbers of rows that are written, and that are recorded.
        self.done = self.kept = 0
        self._saved = time.perf_counter()

    @property
    def is_whole(self):
        """True if all rows are written."""
        return bool(self.arrays) and self.done == self.rows

    def path(self, name):
        return self.progress.with_name(f"{name}.npy")

    def resume(self):
        """Reopen the files of an earlier process, if they hold what it recorded."""
        if not has_record(self.progress):
            return
        try:
            record = read_record(self.progress)
            done = int(record["rows"])
            # Older versions recorded the names alone, or the checksum of the only file.
            columns = record.get("columns") or {self.progress.stem: record["sum"]}
            for name in columns:
                self._reopen(name, done, columns[name] if self.target else None)
            self.done, self.kept, self.columns = done, done, columns
        except (RunFailed, OSError, ValueError, KeyError, TypeError):
            self.close()
            self.arrays = {}

    def _reopen(self, name, done, checksum):
        path = self.path(name)
        if self.target and done == self.rows and not path.exists():
            path = self.target
        array = self.arrays[name] = ResumableArray.resume(path, done, checksum)
        if array.rows != self.rows or (self.target and checksum is None):
            raise ValueError(f"{path} is of other rows")

    def append(self, parts):
        """Append a dict of rows (B, ...), each to the file of its name."""
        for name, part in parts.items():
            if name not in self.arrays:
                self.arrays[name] = ResumableArray(
                    self.path(name), self.rows, part.shape[1:], part.dtype, bool(self.target)
                )
            self.arrays[name].append(part)
        self.done += len(part)
        self.columns = {name: array.checksum for name, array in self.arrays.items()}
        if time.perf_counter() - self._saved >= self.seconds:
            self.save()
            self._saved = time.perf_counter()

    def save(self):
        """Flush the rows, then record their number; this order keeps the record true."""
        for array in self.arrays.values():
            array.sync()
        write_record(self.progress, {"rows": self.done, "columns": self.columns}, copy=False)
        self.kept = self.done

    def finish(self):
        """Record that all rows are there, and move the only file to `target`."""
        self.save()
        self.close()
        for array in self.arrays.values():
            if self.target and array.path != self.target:
                os.replace(array.path, self.target)

    def close(self):
        for array in self.arrays.values():
            array.close()
