"""Resumable writing of computed rows."""

import contextlib
import zipfile
import zlib

import keras
import numpy as np

from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import CHUNK, map_batches
from keras_capsule_poe.data.store import resumable_arrays
from keras_capsule_poe.data.streams import AHEAD
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.models.base.autoencoder import ConvAutoencoder
from keras_capsule_poe.models.base.feature_building import EncodedRows, build_primary
from keras_capsule_poe.training.folder import CHECKPOINTS


def write_rows(run, name, n, compute, stays=True):
    """Write `n` rows of `compute` to an `.npy` file, resuming after an interruption."""
    stage, _, file = name.partition("/")
    # Checkpoints last until the stage is done or restarts. Without `stays`, so does the file.
    path = run.folder.stage(stage) / CHECKPOINTS / file
    target = run.path(name) if stays else path
    at_once = CHUNK * run.distribution.replicas
    with contextlib.ExitStack() as stack:
        rows = None
        if run.is_chief:
            progress, seconds = path.with_suffix(".json"), run.config.checkpoint_seconds
            rows = stack.enter_context(resumable_arrays(progress, n, seconds, target))
        start, is_whole = run.distribution.from_chief(rows and [rows.done, rows.is_whole])
        while not is_whole:
            end = min(start + at_once, n)
            part = compute(slice(start, end))
            if rows:
                rows.append({path.stem: part})
            start, is_whole = end, end == n
    # Barrier: every process may read the file from here on.
    run.distribution.from_chief(None)
    return target


# Errors of Keras and NumPy for truncated, damaged or unexpected files.
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)


def save_model(run, stage, model):
    """Save a stage's trained Keras model."""
    if not run.is_chief:
        return
    with atomic_write(run.path(f"{stage}/model.keras"), suffix=".keras") as temporary:
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
    with atomic_write(run.path(name), suffix=".npz") as temporary:
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
    return RunFailed(f"Cannot read {path} ({reason}).", hint=f"stage_fresh:{stage}")
