"""Resumable writing of computed rows."""

import contextlib
import os
import time
import zipfile
import zlib

import keras
import numpy as np

from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data import batches
from keras_capsule_poe.data.batching import AHEAD
from keras_capsule_poe.data.mapping import CHUNK, map_batches
from keras_capsule_poe.data.store import GrowingRows
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.files import beside
from keras_capsule_poe.io.records import has_record, read_record, write_record
from keras_capsule_poe.models.base.autoencoder import ConvAutoencoder
from keras_capsule_poe.models.base.feature_building import EncodedRows, build_primary
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


# Errors of Keras and NumPy for truncated, damaged or unexpected files.
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)


def save_model(run, stage, model):
    """Save a stage's trained Keras model."""
    if not run.is_chief:
        return
    with beside(run.path(f"{stage}/model.keras"), suffix=".keras") as temporary:
        model.save(temporary)


def load_model(run, stage):
    """Load a stage's trained Keras model; raise `RunFailed` if it is missing or damaged."""
    path = run.path(f"{stage}/model.keras")
    try:
        return keras.models.load_model(path, compile=False)
    except _UNREADABLE as error:
        raise _unreadable(path, stage, error) from error


def save_arrays(run, name, **arrays):
    """Write named arrays to a file in the run's folder."""
    if not run.is_chief:
        return
    with beside(run.path(name), suffix=".npz") as temporary:
        np.savez(temporary, **arrays)


def load_arrays(run, name):
    """Load named arrays; raise `RunFailed` if the file is missing or damaged."""
    path = run.path(name)
    try:
        with np.load(path) as stored:
            return dict(stored)
    except _UNREADABLE as error:
        raise _unreadable(path, name.partition("/")[0], error) from error


def save_rows(run, name, function, rows):
    """Write `function` of all rows to an `.npy` file in the run's folder."""
    _write_mapped(run, name, function, rows)


def rows_meanwhile(run, name, function, rows):
    """Return `function` of all rows, memory-mapped from a file that lasts until the stage ends."""
    return np.load(_write_mapped(run, name, function, rows, stays=False), mmap_mode="r")


def _write_mapped(run, name, function, rows, **options):
    graph = compiled(function)

    def compute(chunk):
        return run.distribution.map(graph, rows[chunk])

    return write_rows(run, name, len(rows), compute, **options)


def save_features(run, part, rows, stays):
    """Write the feature maps, or a file without rows if they are not cached."""

    def compute(chunk):
        # Slicing `EncodedRows` computes the features.
        return run.distribution.gathered(
            lambda own: rows[chunk.start + own.start : chunk.start + own.stop],
            chunk.stop - chunk.start,
        )

    write_rows(run, f"features/{part}.npy", len(rows) if stays else 0, compute)


def load_rows(run, name):
    """Load memory-mapped rows; raise `RunFailed` if the file is missing or damaged."""
    path = run.path(name)
    try:
        return np.load(path, mmap_mode="r")
    except _UNREADABLE as error:
        raise _unreadable(path, name.partition("/")[0], error) from error


def features(run, part):
    """Return feature maps (N, h, w, F), memory-mapped or, if not cached, as `EncodedRows`."""
    rows = load_rows(run, f"features/{part}.npy")
    if len(rows):
        return rows
    return EncodedRows(load_model(run, "autoencoder"), getattr(run.data, part).images)


def load_primary(run):
    """Load the adapted primary capsules of a run."""
    feature_shape = load_model(run, "autoencoder").feature_shape
    primary = build_primary(run.config, feature_shape)
    stored = load_arrays(run, "features/primary.npz")
    primary.mean.assign(stored["mean"])
    primary.feature_gain.assign(stored["gain"])
    return primary


def primary_batches(primary, arrays, **options):
    """Stream batches with the last array, feature maps, replaced by primary capsules."""
    stream = batches(arrays, **options)
    if isinstance(arrays, tuple):
        return stream.map(lambda codes, maps: (codes, primary(maps)), AHEAD)
    return stream.map(primary, AHEAD)


def primary_of(primary, feature_maps):
    """Return the squashed primary capsules (N, I, D) of feature maps, as an array."""
    return map_batches(primary, feature_maps)


def as_float32(autoencoder):
    """Return a copy of an autoencoder that computes in float32."""
    copy = ConvAutoencoder.from_config({**autoencoder.get_config(), "dtype": "float32"})
    copy.build((None, *autoencoder.image_shape))
    copy.set_weights(autoencoder.get_weights())
    return copy


def _unreadable(path, stage, error):
    reason = " ".join(str(error).split())[:200]
    return RunFailed(f"Cannot read {path} ({reason}).", mend=f"stage_fresh:{stage}")
