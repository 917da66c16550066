"""Resumable writing of computed rows."""

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
    """Write `n` rows of `compute` to an `.npy` file, resuming after an interruption."""
    stage, _, file = name.partition("/")
    # Checkpoints last until the stage is done or restarts. Without `stays`, so does the file.
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
    # Barrier: every process may read the file from here on.
    run.distribution.from_chief(None)
    return target


class _Rows:
    """An `.npy` file in progress, with `done` rows so far."""

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
        """Resume an interrupted file if its bytes match the recorded checksum."""
        if not has_record(self.progress):
            return
        try:
            kept = read_record(self.progress)
            done, wanted = int(kept["rows"]), kept["sum"]
            is_whole = done == self.n
            # A complete file may already be at its final path.
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
        # Checksum the bytes in memory: a faulty disk may return different ones.
        self.sum = zlib.crc32(part.tobytes(), self.sum)
        self.done += len(part)
        if time.perf_counter() - self.saved >= self.seconds:
            self._save()
            self.saved = time.perf_counter()

    def _save(self):
        """Flush the rows before recording the progress, so that the record is never ahead."""
        self.file.sync()
        write_record(self.progress, {"rows": self.done, "sum": self.sum}, copy=False)

    def finish(self):
        self._save()
        self.file.close()
        if self.target != self.path and self.path.exists():
            os.replace(self.path, self.target)


def _sum(path):
    """Return the CRC-32 of a file's bytes."""
    found = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found
