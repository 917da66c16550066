"""The trained parts of a run: loading them, streaming their inputs, putting them together."""

import keras
import numpy as np

from keras_capsule_poe.data import batches, sequential_batches
from keras_capsule_poe.data.mapping import CHUNK
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.families.capsule_poe import build
from keras_capsule_poe.layers.gaussian_mixtures import GaussianMixtures
from keras_capsule_poe.models import ConvAutoencoder, ProductOfExpertCapsules

MODEL_FILE = "model.keras"
VISITS_FILE = "visited.npz"


def relative_error(decoded, original):
    """|decoded - original|^2 / |original|^2 over all images."""
    return float(np.square(decoded - original).sum() / np.square(original).sum())


def features(run, name):
    """Memory-mapped float16 feature maps (N, h, w, F) of `"train"` or `"test"`."""
    return np.load(run.stage_folder("features") / f"{name}.npy", mmap_mode="r")


def to_primary(primary, feature_maps):
    """Squashed primary capsules (N, I, D) of feature maps, as an array."""
    chunks = (feature_maps[i : i + CHUNK] for i in range(0, len(feature_maps), CHUNK))
    return np.concatenate(
        [keras.ops.convert_to_numpy(primary(np.asarray(chunk, "float32"))) for chunk in chunks]
    )


def primary_batches(primary, arrays, **options):
    """Batches whose last array, of features, is turned into primary capsules on the way."""
    import tensorflow as tf

    stream = batches(arrays, **options)
    if isinstance(arrays, tuple):
        return stream.map(lambda codes, maps: (codes, primary(maps)), tf.data.AUTOTUNE)
    return stream.map(primary, tf.data.AUTOTUNE)


def write_features(path, autoencoder, images):
    """Writes the feature maps of uint8 images to a float16 `.npy`, a chunk at a time."""
    encode = _compiled(lambda batch: keras.ops.cast(autoencoder.encode(batch), "float16"))
    shape = (len(images), *autoencoder.feature_shape)
    stored = np.lib.format.open_memmap(path, mode="w+", dtype="float16", shape=shape)
    start = 0
    for batch in sequential_batches(images, CHUNK):
        stored[start : start + len(batch)] = encode(batch)
        start += len(batch)
    stored.flush()


def _compiled(function):
    import tensorflow as tf

    return tf.function(function, reduce_retracing=True)


def assemble(run, primary, decoder):
    """The product of a run's parts, in float32, with what describes where training took it.

    Raises:
        RunFailed: If a part is missing or damaged.
    """
    path = run.stage_folder("encoder") / VISITS_FILE
    try:
        with np.load(path) as stored:
            visits = dict(stored)
        priors = [
            GaussianMixtures.of(
                *(visits[f"{name}_{part}"] for part in ("weights", "means", "factors")), name=name
            )
            for name in ("visited", "joint")
        ]
    except (OSError, ValueError, KeyError) as error:
        raise RunFailed(
            f"{path} is missing, damaged or of an older version. Train the encoder again: "
            "--stage encoder --fresh."
        ) from error
    product = ProductOfExpertCapsules(
        _as_float32(load_part(run, "autoencoder")),
        primary,
        load_part(run, "encoder"),
        decoder,
        *priors,
        name="product",
    )
    product.build((None, *product.autoencoder.image_shape))
    product.mean_direction.assign(visits["mean_direction"])
    return product


def load_part(run, stage):
    """The trained Keras model of a stage.

    Raises:
        RunFailed: If it is missing or damaged.
    """
    path = run.stage_folder(stage) / MODEL_FILE
    try:
        return keras.models.load_model(path, compile=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise RunFailed(
            f"Cannot load {path} ({reason}). Train it again: --stage {stage} --fresh."
        ) from error


def load_primary(run):
    """The adapted primary capsules of a run."""
    model = load_part(run, "autoencoder")
    primary = build.build_primary(run.config, model.feature_shape)
    with np.load(run.stage_folder("features") / "primary.npz") as stored:
        primary.mean.assign(stored["mean"])
        primary.feature_gain.assign(stored["gain"])
    return primary


def _as_float32(autoencoder):
    """The same autoencoder computing in float32, whatever it was trained in."""
    copy = ConvAutoencoder.from_config({**autoencoder.get_config(), "dtype": "float32"})
    copy.build((None, *autoencoder.image_shape))
    copy.set_weights(autoencoder.get_weights())
    return copy
