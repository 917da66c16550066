"""Stores of images on disk, which are written once and then read as memory maps."""

import contextlib
import dataclasses
import hashlib
import json
import mmap
import re
import time
from collections.abc import Callable, Mapping

import numpy as np

from keras_capsule_poe.data.disk import resumable_arrays
from keras_capsule_poe.errors import DataError, RunFailed
from keras_capsule_poe.io.atomic import (
    check_writable,
    locked,
    remove,
    remove_stale_files,
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
    remove_stale_files(folder)
    of_all = f"of {source.rows:,} images"
    with resumable_arrays(folder / PROGRESS, source.rows, SECONDS, hint="store_dir") as arrays:
        if arrays.done:
            report(f"{folder}: goes on after {arrays.done:,} {of_all}")
        reported = time.perf_counter()
        for images, known in source.read(arrays.done):
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
