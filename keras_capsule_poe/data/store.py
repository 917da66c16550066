"""Images as rows on disk: a source writes them once, and whoever comes later maps them."""

import contextlib
import dataclasses
import hashlib
import json
import mmap
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from keras_capsule_poe.data.growing import GrowingRows
from keras_capsule_poe.errors import DataError, RunFailed
from keras_capsule_poe.io.files import check_writable, digest, remove
from keras_capsule_poe.io.leftovers import remove_leftovers
from keras_capsule_poe.io.locks import locked
from keras_capsule_poe.io.records import has_record, read_record, remove_record, write_record

RECORD, PROGRESS, LOCK = "store.json", "progress.json", ".lock"
# What a kill may cost, and how often one hears of it.
SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Source:
    """Images that a store can be written of.

    Attributes:
        name: str, what the store's folder begins with.
        about: dict of plain values: all that the images depend on. Other values, another store.
        rows: int, how many images there are.
        read: Function of the number of a row to an iterator of blocks from it on, in the same
            order each time: uint8 images (B, H, W, C), and a dict by name of what is known of
            each, arrays (B,).
    """

    name: str
    about: Mapping
    rows: int
    read: Callable

    @property
    def fingerprint(self):
        """16 hex digits that change with `about` and the number of rows."""
        words = json.dumps([self.rows, self.about], sort_keys=True)
        return hashlib.sha256(words.encode()).hexdigest()[:16]


def open_store(source, directory, report=None):
    """The images of a source as memory-mapped rows, written first where they are not there yet.

    They lie in `DIRECTORY/NAME-FINGERPRINT`, a file `.npy` for the images and for whatever is
    known of them, and `store.json` with the sums of these files, written last. Writing that was
    cut short goes on with the row where it stopped; files that are not what was written are
    written again. A file whose size and time of writing are as they were is taken to be what was
    written, and is not read for its sum. Another process that writes the same store is waited for.

    Args:
        source: `Source`.
        directory: Folder of stores; it need not exist.
        report: Function of a line, told how writing goes; `None`: nobody is.

    Returns:
        Memory-mapped images (N, H, W, C), uint8, and a dict by name of arrays (N,), in memory.

    Raises:
        DataError: If the images differ in size, or are not as many as they should be.
        RunFailed: If the store cannot be written; what is written stays.

    Examples:

    >>> import tempfile
    >>> def read(first):
    ...     yield np.zeros((3 - first, 8, 8, 1), np.uint8), {"labels": np.arange(first, 3)}
    >>> images, known = open_store(Source("zeros", {}, 3, read), tempfile.mkdtemp())
    >>> type(images).__name__, images.shape, known["labels"].tolist()
    ('memmap', (3, 8, 8, 1), [0, 1, 2])
    """
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
    """`Source.read` of several parts, one after another.

    Args:
        parts: Sequence of pairs: rows, and a function as `Source.read`.

    Examples:

    >>> def read(first):
    ...     yield np.arange(first, 3), {}
    >>> [block.tolist() for block, _ in joined([(3, read), (3, read)])(first=1)]
    [[1, 2], [0, 1, 2]]
    """

    def read(first):
        for rows, of_part in parts:
            if first < rows:
                yield from of_part(first)
            first = max(first - rows, 0)

    return read


def _plain(name):
    """A name that any file system takes."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[-80:] or "images"


def _opened(folder):
    """What lies in a finished store; None where a file is not what was written."""
    try:
        record = read_record(folder / RECORD)
        sums = record["files"]
        stamps = {name: _stamp(folder / name) for name in sums}
        changed = [name for name in sums if stamps[name] != record.get("stamps", {}).get(name)]
        if any(digest(folder / name) != sums[name] for name in changed):
            return None
        if changed:
            # A copy of a store is read for its sums once; where nothing can be written, each time.
            with contextlib.suppress(RunFailed, OSError):
                write_record(folder / RECORD, {**record, "stamps": stamps})
        known = {name.removesuffix(".npy"): np.load(folder / name, mmap_mode="r") for name in sums}
        images = known.pop("images")
        # Rows are read in any order: what lies around one would be read from disk for nothing.
        if hasattr(mmap, "MADV_RANDOM"):
            images._mmap.madvise(mmap.MADV_RANDOM)
    except (RunFailed, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return images, {name: np.array(rows) for name, rows in known.items()}


def _stamp(path):
    """What changes when a file is written: its size, and when that was, nanoseconds."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _write(source, folder, report):
    """Writes what is not written yet, and the record last."""
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
    """The files of a store while it is written; `done` rows are there, `kept` of them for good."""

    def __init__(self, source, folder, report):
        self.source, self.folder, self.report = source, folder, report
        self.columns = {}
        self.done = self.kept = self._resumed()
        self._saved = self._told = time.perf_counter()

    def _resumed(self):
        """How many rows an earlier process left; its files are open then."""
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
        """Brings to disk what is written, and then says so: in this order it is true."""
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
