"""Rows of images in memory or in files on disk, which are written once and then memory-mapped."""

import contextlib
import dataclasses
import hashlib
import json
import mmap
import os
import re
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from keras_capsule_poe.data.mapping import chunks
from keras_capsule_poe.data.pixels import check_room
from keras_capsule_poe.errors import DataError, RunFailed
from keras_capsule_poe.io.atomic import (
    check_writable,
    locked,
    remove,
    remove_stale_files,
    temporary_path,
    user_path,
)
from keras_capsule_poe.io.records import (
    digest,
    has_record,
    read_record,
    remove_record,
    write_record,
)

RECORD, PROGRESS, LOCK = "store.json", "progress.json", ".lock"
# Maximum time of writing lost on interruption, and the interval of progress messages.
SECONDS = 10.0
# Rows that turn RGB at once, and bytes that a checksum reads at once.
_BLOCK, _READ = 4096, 2**20


@dataclasses.dataclass(frozen=True)
class Source:
    """Images that are read in blocks, such as those of two splits."""

    name: str
    # All values that determine the images; other values give another store.
    about: Mapping
    # Number of images of each part.
    sizes: list[int]
    # read(part, first) yields blocks of a part from its row `first` on: uint8 (B, H, W, C), and a
    # dict of arrays (B,).
    read: Callable

    @property
    def rows(self):
        """Number of images of all parts."""
        return sum(self.sizes)

    @property
    def fingerprint(self):
        """Hash of `about` and the number of rows."""
        words = json.dumps([self.rows, self.about], sort_keys=True)
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    def blocks(self, first):
        """Iterate over the blocks of all parts from row `first` on."""
        for part, size in enumerate(self.sizes):
            if first < size:
                yield from self.read(part, first)
            first = max(first - size, 0)


def read_parts(source, directory=None, report=None):
    """Return images (N, H, W, C) and a dict of arrays (N,) of each part of a `Source`.

    Args:
        source: `Source`.
        directory: path of a folder for a store of the images. None: images are read into memory.
        report: function of a str, or None.
    """
    if directory is None:
        return [_in_memory(source, part) for part in range(len(source.sizes))]
    images, known = open_store(source, directory, report)
    ends = np.cumsum(source.sizes)
    parts = [slice(end - size, end) for end, size in zip(ends, source.sizes)]
    return [(images[part], {name: known[name][part] for name in known}) for part in parts]


def _in_memory(source, part):
    n, done, arrays = source.sizes[part], 0, {}
    for images, known in source.read(part, 0):
        block = {"images": images, **known}
        if not arrays:
            check_room(n, images.shape[1:])
            arrays = {
                name: np.empty((n, *rows.shape[1:]), rows.dtype) for name, rows in block.items()
            }
        for name, rows in block.items():
            rows = rows[: n - done]
            arrays[name][done : done + len(rows)] = rows
        done += len(images)
        if done >= n:
            break
    return arrays.pop("images"), arrays


def open_store(source, directory, report=None):
    """Return memory-mapped images (N, H, W, C) and a dict of arrays (N,), written if needed."""
    report = report or (lambda line: None)
    folder = user_path(directory) / f"{_plain(source.name)}-{source.fingerprint}"
    if has_record(folder / RECORD) and (found := _opened(folder)):
        return found
    check_writable(folder, hint="store_dir")

    def held():
        report(f"Another process writes {folder}: waiting for it.")

    with locked(folder / LOCK, held, report):
        if has_record(folder / RECORD):
            if found := _opened(folder):
                return found
            report(f"{folder} is damaged: it is written again.")
            remove_record(folder / RECORD)
            remove(folder / PROGRESS)
        _write(source, folder, report)
        return _opened(folder)


def _plain(name):
    """Return a name that any file system accepts."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[-80:] or "images"


def _opened(folder):
    """Return the arrays of a finished store, or `None` if a file does not match its record."""
    try:
        record = read_record(folder / RECORD)
        sums = record["files"]
        stamps = {name: _stamp(folder / name) for name in sums}
        changed = [name for name in sums if stamps[name] != record.get("stamps", {}).get(name)]
        if any(digest(folder / name) != sums[name] for name in changed):
            return None
        if changed:
            # A copied store is checked once; a read-only copy at every opening.
            with contextlib.suppress(RunFailed, OSError):
                write_record(folder / RECORD, {**record, "stamps": stamps})
        known = {name.removesuffix(".npy"): np.load(folder / name, mmap_mode="r") for name in sums}
        images = known.pop("images")
        # Rows are read in random order, so reading ahead would be wasted.
        if hasattr(mmap, "MADV_RANDOM"):
            images._mmap.madvise(mmap.MADV_RANDOM)
    except (RunFailed, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return images, {name: np.array(rows) for name, rows in known.items()}


def _stamp(path):
    """Return the size and the modification time (ns) of a file."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _write(source, folder, report):
    """Write the missing rows, then the record."""
    remove_stale_files(folder)
    of_all = f"of {source.rows:,} images"
    with resumable_arrays(folder / PROGRESS, source.rows, SECONDS, hint="store_dir") as arrays:
        if arrays.done:
            report(f"{folder}: goes on after {arrays.done:,} {of_all}")
        reported = time.perf_counter()
        for images, known in source.blocks(arrays.done):
            arrays.append({"images": images, **known})
            if time.perf_counter() - reported >= SECONDS:
                reported = time.perf_counter()
                report(f"{folder}: {arrays.done:,} {of_all}")
        if arrays.done != source.rows:
            raise DataError(
                f"{source.name} changed while it was read: there must be "
                f"{source.rows:,} images. Received: {arrays.done:,}."
            )
    paths = [array.path for array in arrays.arrays.values()]
    record = {
        "files": {path.name: digest(path) for path in paths},
        "stamps": {path.name: _stamp(path) for path in paths},
        "about": dict(source.about),
    }
    write_record(folder / RECORD, record)
    remove(folder / PROGRESS)


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
        # `target` there is one file, which moves there when it is whole.
        self.progress, self.rows, self.seconds, self.target = progress, rows, seconds, target
        self.arrays = {}
        # Numbers of rows that are written, and that are recorded.
        self.done = self.kept = 0
        self._saved = time.perf_counter()

    @property
    def is_whole(self):
        """True if all rows are written."""
        return bool(self.arrays) and self.done == self.rows

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
                checksum = columns[name] if isinstance(columns, dict) else None
                self._reopen(name, done, checksum)
            self.done = self.kept = done
        except (RunFailed, OSError, ValueError, KeyError, TypeError):
            self.close()
            self.arrays = {}

    def _reopen(self, name, done, checksum):
        path = self._path(name)
        if self.target and done == self.rows and not path.exists():
            path = self.target
        array = self.arrays[name] = ResumableArray.resume(path, done, checksum)
        if array.rows != self.rows:
            raise ValueError(f"{path} is of other rows")

    def _path(self, name):
        return self.progress.with_name(f"{name}.npy")

    def append(self, parts):
        """Append a dict of rows (B, ...), each to the file of its name."""
        for name, part in parts.items():
            if name not in self.arrays:
                shape = part.shape[1:]
                self.arrays[name] = ResumableArray(self._path(name), self.rows, shape, part.dtype)
            self.arrays[name].append(part)
        self.done += len(part)
        if time.perf_counter() - self._saved >= self.seconds:
            self.save()
            self._saved = time.perf_counter()

    def save(self):
        """Flush the rows, then record their number; this order keeps the record true."""
        for array in self.arrays.values():
            os.fsync(array.file.fileno())
        columns = {name: array.checksum for name, array in self.arrays.items()}
        write_record(self.progress, {"rows": self.done, "columns": columns}, copy=False)
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
            array.file.close()


class ResumableArray:
    """Writer of an `.npy` file with a fixed number of rows, appended in blocks."""

    def __init__(self, path, rows, shape, dtype):
        self.path, self.rows, self.shape, self.dtype = path, rows, tuple(shape), np.dtype(dtype)
        # Not over an old file: a process that has mapped it would be killed.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        # No memory map: writing to one on a full disk kills the process instead of raising.
        self.file = open(path, "w+b", buffering=0)
        about = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False}
        npy.write_array_header_1_0(self.file, {**about, "shape": (rows, *shape)})
        self.offset = self.file.tell()
        self.checksum = _crc(path)

    @classmethod
    def resume(cls, path, done, checksum=None):
        """Reopen a file after its first `done` rows; raise ValueError if it does not hold them."""
        array = cls.__new__(cls)
        array.path = path
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
            array.checksum = _crc(path)
            if checksum not in (None, array.checksum):
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
            rgb = ResumableArray(path, self.rows, (*self.shape[:-1], 3), self.dtype)
            on_error.callback(rgb.file.close)
            for part in chunks(grey, _BLOCK):
                rgb.append(np.repeat(part, 3, axis=-1))
            os.fsync(rgb.file.fileno())
            os.replace(path, self.path)
            on_error.pop_all()
        self.file.close()
        self.__dict__.update(vars(rgb), path=self.path)


def _crc(path):
    """Return the CRC-32 of a file's bytes."""
    found = 0
    with open(path, "rb") as file:
        while block := file.read(_READ):
            found = zlib.crc32(block, found)
    return found
