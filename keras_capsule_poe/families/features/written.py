"""Rows that a stage computes once, however often it is killed and begun again."""

import contextlib
import os
import time
import zlib

from keras_capsule_poe.data.growing import GrowingRows
from keras_capsule_poe.data.mapping import CHUNK
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.records import has_record, read_record, write_record
from keras_capsule_poe.training.folder import CHECKPOINTS

_BLOCK = 2**20


def write_rows(run, name, n, compute, stays=True):
    """Writes an `.npy` of computed rows, from where an earlier process of the stage stopped.

    They are computed in chunks. What is written lies in the stage's checkpoints, with how many
    rows that are and their sum, and goes with them: when the stage is done, or begins anew. Bytes
    that have another sum are computed anew.

    Args:
        run: `Run`.
        name: str, the file: `STAGE/NAME.npy`.
        n: int, N, how many rows there are.
        compute: Function of a slice of them to an array, called alike in every process.
        stays: bool, whether the file moves to its place when it is whole; if not, it stays among
            the checkpoints.

    Returns:
        Path of the whole file.

    Raises:
        RunFailed: If it cannot be written; what is written stays.
    """
    stage, _, file = name.partition("/")
    path = run.folder.stage(stage) / CHECKPOINTS / file
    target = run.path(name) if stays else path
    at_once = CHUNK * run.distribution.replicas
    with contextlib.ExitStack() as stack:
        rows = stack.enter_context(_Rows(path, target, n, run)) if run.is_chief else None
        kept = [rows.done, rows.is_whole] if rows else None
        start, is_whole = run.distribution.from_chief(kept)
        while not is_whole:
            end = min(start + at_once, n)
            part = compute(slice(start, end))
            if rows:
                rows.append(part)
            start, is_whole = end, end == n
        if rows:
            rows.finish()
    # All may read it now.
    run.distribution.from_chief(None)
    return target


class _Rows:
    """The file while it is written; `done` rows are there."""

    def __init__(self, path, target, n, run):
        self.path, self.target, self.n = path, target, n
        self.progress = path.with_suffix(".json")
        self.seconds = run.config.checkpoint_seconds
        self.file, self.done, self.sum, self.is_whole = None, 0, 0, False

    def __enter__(self):
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._go_on()
        except OSError as error:
            raise self._failed(error) from error
        self.saved = time.perf_counter()
        return self

    def __exit__(self, kind, error, trace):
        if self.file is None:
            return
        if error is not None and self.done:
            with contextlib.suppress(OSError, RunFailed):
                self._save()
        self.file.close()
        if isinstance(error, OSError):
            raise self._failed(error) from error

    def _failed(self, error):
        return RunFailed(f"Cannot write {self.target}: {error.strerror or error}.")

    def _go_on(self):
        """Takes up what an earlier process left, if it is what that one wrote."""
        if not has_record(self.progress):
            return
        try:
            kept = read_record(self.progress)
            done, wanted = int(kept["rows"]), kept["sum"]
            is_whole = done == self.n
            # Whole, it may have moved to its place already.
            there = self.target if is_whole and not self.path.exists() else self.path
            file = GrowingRows.resume(there, done)
        except (RunFailed, OSError, ValueError, KeyError, TypeError):
            return
        if file.rows != self.n or _sum(there) != wanted:
            file.close()
            return
        self.file, self.done, self.sum, self.is_whole = file, done, wanted, is_whole

    def append(self, part):
        if self.file is None:
            self.file = GrowingRows(self.path, self.n, part)
            self.sum = _sum(self.path)
        self.file.append(part)
        # Of the bytes as they were given, not as a disk may give them back.
        self.sum = zlib.crc32(part.tobytes(), self.sum)
        self.done += len(part)
        if time.perf_counter() - self.saved >= self.seconds:
            self._save()
            self.saved = time.perf_counter()

    def _save(self):
        """Brings to disk what is written, and then says so: in this order it is true."""
        self.file.sync()
        write_record(self.progress, {"rows": self.done, "sum": self.sum}, copy=False)

    def finish(self):
        self._save()
        self.file.close()
        if self.target != self.path and self.path.exists():
            os.replace(self.path, self.target)


def _sum(path):
    """CRC-32 of a file's bytes."""
    found = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found
