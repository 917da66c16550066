"""Resumable `.npy` files that grow by rows."""

import contextlib
import dataclasses
import hashlib
import json
import mmap
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from keras_capsule_poe.errors import DataError, RunFailed
from keras_capsule_poe.io.files import check_writable, digest, remove
from keras_capsule_poe.io.leftovers import remove_leftovers, temporary_path
from keras_capsule_poe.io.locks import locked
from keras_capsule_poe.io.records import has_record, read_record, remove_record, write_record

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


RECORD, PROGRESS, LOCK = "store.json", "progress.json", ".lock"
# Maximum time of writing lost on interruption, and the interval of progress messages.
SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Source:
    """Images from which a store can be written."""

    name: str
    # All values that determine the images; other values give another store.
    about: Mapping
    rows: int
    # read(first) yields blocks from row `first` on: uint8 (B, H, W, C), dict of arrays (B,).
    read: Callable

    @property
    def fingerprint(self):
        """Hash of `about` and the number of rows."""
        words = json.dumps([self.rows, self.about], sort_keys=True)
        return hashlib.sha256(words.encode()).hexdigest()[:16]


def open_store(source, directory, report=None):
    """Return memory-mapped images (N, H, W, C) and a dict of arrays (N,), written if needed."""
    report = report or (lambda line: None)
    folder = Path(directory).expanduser() / f"{_plain(source.name)}-{source.fingerprint}"
    if has_record(folder / RECORD) and (found := _opened(folder)):
        return found
    check_writable(folder, mend="store_dir")

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


def joined(parts):
    """Return a `Source.read` over several parts, pairs (rows, read), in sequence."""

    def read(first):
        for rows, of_part in parts:
            if first < rows:
                yield from of_part(first)
            first = max(first - rows, 0)

    return read


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
    remove_leftovers(folder)
    writer = _Writer(source, folder, report)
    try:
        for images, known in source.read(writer.done):
            writer.append({"images": images, **known})
        writer.finish()
    except BaseException as error:
        with contextlib.suppress(OSError, RunFailed):
            if writer.done:
                writer.save()
        if not isinstance(error, OSError):
            raise
        raise RunFailed(
            f"Cannot write {folder}: {error.strerror or error}. {writer.kept:,} of {source.rows:,} "
            "images are kept, and the same again goes on from there.",
            mend="store_dir",
        ) from error
    finally:
        writer.close()


class _Writer:
    """Files of an unfinished store: `done` rows are written, `kept` rows are synced to disk."""

    def __init__(self, source, folder, report):
        self.source, self.folder, self.report = source, folder, report
        self.columns = {}
        self.done = self.kept = self._resumed()
        self._saved = self._told = time.perf_counter()

    def _resumed(self):
        """Reopen the files of an earlier process and return its number of saved rows."""
        if not has_record(self.folder / PROGRESS):
            return 0
        try:
            progress = read_record(self.folder / PROGRESS)
            done = progress["rows"]
            for name in progress["columns"]:
                self.columns[name] = GrowingRows.resume(self._path(name), done)
        except (RunFailed, OSError, ValueError, KeyError, TypeError):
            self.close()
            self.columns = {}
            return 0
        self.report(f"{self.folder}: goes on after {done:,} of {self.source.rows:,} images")
        return done

    def _path(self, name):
        return self.folder / f"{name}.npy"

    def append(self, block):
        for name, part in block.items():
            if name not in self.columns:
                self.columns[name] = GrowingRows(self._path(name), self.source.rows, part)
            self.columns[name].append(part)
        self.done += len(block["images"])
        now = time.perf_counter()
        if now - self._saved >= SECONDS:
            self.save()
            self._saved = time.perf_counter()
        if now - self._told >= SECONDS:
            self._told = now
            self.report(f"{self.folder}: {self.done:,} of {self.source.rows:,} images")

    def save(self):
        """Sync the rows, then record their number; this order keeps the record true."""
        for column in self.columns.values():
            column.sync()
        progress = {"rows": self.done, "columns": list(self.columns)}
        write_record(self.folder / PROGRESS, progress, copy=False)
        self.kept = self.done

    def finish(self):
        if self.done != self.source.rows:
            raise DataError(
                f"{self.source.name} changed while it was read: there must be "
                f"{self.source.rows:,} images. Received: {self.done:,}."
            )
        self.save()
        files = {f"{name}.npy": self._path(name) for name in self.columns}
        record = {
            "files": {name: digest(path) for name, path in files.items()},
            "stamps": {name: _stamp(path) for name, path in files.items()},
            "about": dict(self.source.about),
        }
        write_record(self.folder / RECORD, record)
        remove(self.folder / PROGRESS)

    def close(self):
        for column in self.columns.values():
            column.close()
