"""What the stages leave for later ones."""

import zipfile
import zlib

import keras
import numpy as np

from keras_capsule_poe.data import batches
from keras_capsule_poe.data.batching import AHEAD
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.families.features.build import build_primary
from keras_capsule_poe.families.features.encoded import EncodedRows
from keras_capsule_poe.families.features.written import write_rows
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.io.files import beside
from keras_capsule_poe.models import ConvAutoencoder

# What Keras and NumPy let through when a file is cut short, damaged or of another kind.
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)


def save_model(run, stage, model):
    """Saves a stage's trained Keras model."""
    if not run.is_chief:
        return
    with beside(run.path(f"{stage}/model.keras"), suffix=".keras") as temporary:
        model.save(temporary)


def load_model(run, stage):
    """The trained Keras model of a stage.

    Raises:
        RunFailed: If it is missing or damaged.
    """
    path = run.path(f"{stage}/model.keras")
    try:
        return keras.models.load_model(path, compile=False)
    except _UNREADABLE as error:
        raise _unreadable(path, stage, error) from error


def save_arrays(run, name, **arrays):
    """Writes named arrays to a file in the run's folder."""
    if not run.is_chief:
        return
    with beside(run.path(name), suffix=".npz") as temporary:
        np.savez(temporary, **arrays)


def load_arrays(run, name):
    """The named arrays of a file in the run's folder.

    Raises:
        RunFailed: If it is missing or damaged.
    """
    path = run.path(name)
    try:
        with np.load(path) as stored:
            return dict(stored)
    except _UNREADABLE as error:
        raise _unreadable(path, name.partition("/")[0], error) from error


def save_rows(run, name, function, rows):
    """Writes a function of rows to an `.npy` in the run's folder, see `write_rows`.

    Args:
        run: `Run`.
        name: str, the file.
        function: See `map_batches`.
        rows: Array (N, ...).
    """
    _write_mapped(run, name, function, rows)


def rows_meanwhile(run, name, function, rows):
    """Memory-mapped rows as of `save_rows`, whose file goes when the stage is done."""
    return np.load(_write_mapped(run, name, function, rows, stays=False), mmap_mode="r")


def _write_mapped(run, name, function, rows, **options):
    graph = compiled(function)

    def compute(chunk):
        return run.distribution.map(graph, rows[chunk])

    return write_rows(run, name, len(rows), compute, **options)


def save_features(run, part, rows, stays):
    """Writes features to the run's folder, or in their place a file of no rows.

    Args:
        run: `Run`.
        part: `"train"` or `"held_out"`.
        rows: `EncodedRows`.
        stays: bool, whether they are kept; if not, `features` computes them anew each time.
    """

    def compute(chunk):
        # A slice of these rows is computed as it is taken.
        return run.distribution.gathered(
            lambda own: rows[chunk.start + own.start : chunk.start + own.stop],
            chunk.stop - chunk.start,
        )

    write_rows(run, f"features/{part}.npy", len(rows) if stays else 0, compute)


def load_rows(run, name):
    """The rows of an `.npy` in the run's folder, memory-mapped.

    Raises:
        RunFailed: If it is missing or damaged.
    """
    path = run.path(name)
    try:
        return np.load(path, mmap_mode="r")
    except _UNREADABLE as error:
        raise _unreadable(path, name.partition("/")[0], error) from error


def features(run, part):
    """The float16 feature maps (N, h, w, F) of `"train"` or `"held_out"`, indexed as an array.

    They are memory-mapped, or, where they are not kept, `EncodedRows`.
    """
    rows = load_rows(run, f"features/{part}.npy")
    if len(rows):
        return rows
    return EncodedRows(load_model(run, "autoencoder"), getattr(run.data, part).images)


def load_primary(run):
    """The adapted primary capsules of a run."""
    feature_shape = load_model(run, "autoencoder").feature_shape
    primary = build_primary(run.config, feature_shape)
    stored = load_arrays(run, "features/primary.npz")
    primary.mean.assign(stored["mean"])
    primary.feature_gain.assign(stored["gain"])
    return primary


def primary_batches(primary, arrays, **options):
    """Batches whose last array, of features, is turned into primary capsules on the way."""
    stream = batches(arrays, **options)
    if isinstance(arrays, tuple):
        return stream.map(lambda codes, maps: (codes, primary(maps)), AHEAD)
    return stream.map(primary, AHEAD)


def primary_of(primary, feature_maps):
    """Squashed primary capsules (N, I, D) of feature maps, as an array."""
    return map_batches(primary, feature_maps)


def as_float32(autoencoder):
    """The same autoencoder computing in float32, whatever it was trained in."""
    copy = ConvAutoencoder.from_config({**autoencoder.get_config(), "dtype": "float32"})
    copy.build((None, *autoencoder.image_shape))
    copy.set_weights(autoencoder.get_weights())
    return copy


def _unreadable(path, stage, error):
    reason = " ".join(str(error).split())[:200]
    return RunFailed(f"Cannot read {path} ({reason}).", mend=f"stage_fresh:{stage}")
