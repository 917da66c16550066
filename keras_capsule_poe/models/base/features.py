"""Features of images: training of the autoencoder, feature maps on disk, primary capsules."""

import contextlib
import math
import zipfile
import zlib

import keras
import numpy as np

from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data import batches, sequential_batches
from keras_capsule_poe.data.mapping import CHUNK, chunks, map_batches, spread, to_pixels
from keras_capsule_poe.data.store import resumable_arrays
from keras_capsule_poe.data.streams import AHEAD
from keras_capsule_poe.distributed.distribution import Distribution
from keras_capsule_poe.errors import ConfigError, RunFailed, in_short
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.keras_private import all_layers
from keras_capsule_poe.layers.capsules import PrimaryCapsules
from keras_capsule_poe.metrics import relative_error
from keras_capsule_poe.models.base.autoencoder import ConvAutoencoder
from keras_capsule_poe.training.folder import CHECKPOINTS
from keras_capsule_poe.training.optimizers import ConvolutionMuon
from keras_capsule_poe.training.precision import policy
from keras_capsule_poe.training.sanity import warn, worse_than_mean
from keras_capsule_poe.training.settings import disk_limit

# Images per device and call. The number is fixed because other batch sizes round differently.
AT_ONCE = 128
# Images that a mean of all training images is computed from.
AVERAGED = 500
# Images of a picture of progress.
SHOWN = 12
# Errors of Keras and NumPy for truncated, damaged or unexpected files.
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)


def build_autoencoder(settings, image_shape):
    """Return the autoencoder, built for images (H, W, C) but not compiled."""
    model = ConvAutoencoder(
        filters=settings.autoencoder.filters,
        feature_noise=settings.autoencoder.feature_noise,
        seed=settings.seed,
        dtype=policy(settings.compute.precision),
        name="autoencoder",
    )
    model.build((None, *image_shape))
    return model


def build_primary(settings, feature_shape):
    """Return the primary capsules, built for feature maps (h, w, F) but not adapted."""
    layer = PrimaryCapsules(**settings.primary.model_dump(), name="primary")
    layer.build((None, *feature_shape))
    return layer


def autoencoder_optimizer(settings, images):
    """Return Muon with a short warm-up and a cosine decay to 2% of the rate."""
    steps = math.prod(settings.schedule.over(images))
    warm_up = min(50, max(1, steps // 10))
    rate = keras.optimizers.schedules.CosineDecay(
        settings.learning_rate / 10,
        max(1, steps - warm_up),
        alpha=0.02,
        warmup_target=settings.learning_rate,
        warmup_steps=warm_up,
    )
    # The weight decay keeps the features in few directions.
    return ConvolutionMuon(rate, weight_decay=2.0)


def sgd(settings, images, least=0.1):
    """Return SGD with momentum and a cosine decay to a fraction of the rate."""
    steps = math.prod(settings.schedule.over(images))
    rate = keras.optimizers.schedules.CosineDecay(settings.learning_rate, steps, alpha=least)
    return keras.optimizers.SGD(rate, momentum=settings.momentum)


def begin(run, stage, model, *inner):
    """Give a built model the weights that its training goes on from; return whether there are any.

    These are the weights of a finished stage that is trained for more epochs, or those that the
    run starts with. The latter may be of a layer in the model, one of `inner`.
    """
    given = load_model(run, stage) if stage in run.goes_on else run.start.get(stage)
    if given is None:
        return False
    target = next((each for each in (model, *inner) if type(each) is type(given)), None)
    if target is None:
        raise ConfigError(
            f"`{stage}` must be of the class that `fit` makes, {type(model).__name__}, or another "
            f"would take its weights. Received: {type(given).__name__}"
        )
    if [value.shape for value in given.get_weights()] != [tuple(w.shape) for w in target.weights]:
        raise ConfigError(
            f"the settings of `{stage}` must be those of its trained weights. Received: other "
            "shapes. `reset()` makes the model forget its weights."
        )
    target.set_weights(given.get_weights())
    copy_trainable(given, target)
    return True


def copy_trainable(given, target):
    """Freeze the layers of a model that are frozen in another model of the same structure."""
    if not isinstance(given, keras.layers.Layer):
        return
    # Parents come first: they set the flag of all layers in them.
    for layer, other in zip(all_layers(target), all_layers(given)):
        if layer.trainable != other.trainable:
            layer.trainable = other.trainable


def train_autoencoder(run):
    """Train the convolutional autoencoder by backpropagation of the cross-entropy of pixels."""
    data, settings = run.data, run.settings.autoencoder
    model = build_autoencoder(run.settings, data.image_shape)
    begin(run, "autoencoder", model)
    # XLA makes large convolutions many times slower on a CPU.
    model.compile(
        autoencoder_optimizer(settings, len(data.train)), "binary_crossentropy", jit_compile=False
    )
    held_out = to_pixels(data.held_out.images)

    def after_epoch():
        decoded = model.predict(sequential_batches(held_out, settings.batch_size), verbose=0)
        loss = np.mean(keras.losses.binary_crossentropy(held_out, decoded))
        return {
            "val_loss": float(loss),
            "val_relative_error": float(relative_error(decoded, held_out)),
        }

    def picture(path):
        shown = held_out[:SHOWN]
        save_grid(path, [shown, model.predict_on_batch(shown)])

    def stream(**order):
        return batches(data.train.images, **order)

    last = run.fit("autoencoder", model, stream, settings.schedule, after_epoch, picture)
    save_model(run, "autoencoder", model)
    found = worse_than_mean(held_out, last["val_relative_error"], pixel_mean(data.train))
    return {**last, **warn(run, "autoencoder", found)}


def pixel_mean(images):
    """Return the mean (H, W, C) of some images of an `ImageSet`, as pixels."""
    return to_pixels(images.images[spread(len(images), AVERAGED)]).mean(axis=0)


def compute_features(run):
    """Compute the feature maps, cached if the disk limit allows, and adapt the primary capsules."""
    model = load_model(run, "autoencoder")
    data, settings = run.data, run.settings
    images = len(data.train) + len(data.held_out)
    limit = disk_limit(settings.compute.features_limit)
    stays = feature_bytes(model.feature_shape, images) <= limit
    for name in ("train", "held_out"):
        rows = EncodedRows(model, getattr(data, name).images, run.distribution)
        _save_features(run, name, rows, stays)
    primary = build_primary(settings, model.feature_shape)
    if not begin(run, "features", primary) or primary.trainable:
        primary.adapt(chunks(feature_maps(run, "train"), 500))
    gain = primary.feature_gain.numpy()
    save_arrays(run, "features/primary.npz", mean=primary.mean.numpy(), gain=gain)
    return {"feature_gain": float(gain)}


class Features:
    """Primary capsules x (N, I, D) of a run's images, from the feature maps on disk.

    Attributes:
        primary: Adapted `PrimaryCapsules`.
        train, held_out: Feature maps (N, h, w, F).
        to_capsules: Function of feature maps to primary capsules, or to other visible units.
    """

    def __init__(self, run, to_capsules=None):
        self.primary = load_primary(run)
        self.train, self.held_out = (feature_maps(run, name) for name in ("train", "held_out"))
        self.to_capsules = to_capsules(self.primary) if to_capsules else self.primary

    def of(self, maps):
        """Return the primary capsules of feature maps, as an array."""
        return map_batches(self.to_capsules, maps)

    @property
    def mean(self):
        """Mean (I, D) of the primary capsules of some training images."""
        return self.of(self.train[spread(len(self.train), AVERAGED)]).mean(axis=0)

    def stream(self, codes=None, **order):
        """Return a `tf.data.Dataset` of batches of primary capsules x, or of pairs (codes, x)."""
        if codes is None:
            return batches(self.train, **order).map(self.to_capsules, AHEAD)
        pairs = batches((codes, self.train), **order)
        return pairs.map(lambda codes, maps: (codes, self.to_capsules(maps)), AHEAD)


class EncodedRows:
    """Float16 feature maps (N, h, w, F) of images, computed each time that rows are read."""

    dtype = np.dtype("float16")

    def __init__(self, autoencoder, images, distribution=None):
        distribution = distribution or Distribution()
        self.images = images
        self.shape = (len(images), *autoencoder.feature_shape)
        self._at_once = AT_ONCE * distribution.devices

        def encode(pixels):
            with autoencoder.fast():
                return keras.ops.cast(autoencoder.encode(pixels), self.dtype.name)

        self._encode = distribution.on_devices(compiled(encode))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, key):
        if isinstance(key, (int, np.integer)):
            return self[[key]][0]
        images = self.images[key]
        found = np.empty((len(images), *self.shape[1:]), self.dtype)
        together = np.zeros((self._at_once, *self.images.shape[1:]), "float32")
        for start in range(0, len(images), self._at_once):
            some = to_pixels(images[start : start + self._at_once])
            together[: len(some)] = some
            maps = keras.ops.convert_to_numpy(self._encode(keras.ops.convert_to_tensor(together)))
            found[start : start + len(some)] = maps[: len(some)]
        return found


def feature_bytes(feature_shape, images):
    """Return the bytes on disk of the feature maps (h, w, F) of `images` images."""
    return EncodedRows.dtype.itemsize * math.prod(feature_shape) * images


def feature_maps(run, part):
    """Return feature maps (N, h, w, F), memory-mapped or, if not cached, as `EncodedRows`."""
    rows = load_rows(run, f"features/{part}.npy")
    if len(rows):
        return rows
    return EncodedRows(load_model(run, "autoencoder"), getattr(run.data, part).images)


def load_primary(run):
    """Load the adapted primary capsules of a run."""
    primary = build_primary(run.settings, load_model(run, "autoencoder").feature_shape)
    stored = load_arrays(run, "features/primary.npz")
    primary.mean.assign(stored["mean"])
    primary.feature_gain.assign(stored["gain"])
    return primary


def as_float32(autoencoder):
    """Return a copy of an autoencoder that computes in float32."""
    copy = ConvAutoencoder.from_config({**autoencoder.get_config(), "dtype": "float32"})
    copy.build((None, *autoencoder.image_shape))
    copy.set_weights(autoencoder.get_weights())
    return copy


def _save_features(run, part, rows, stays):
    """Write the feature maps, or a file without rows if they are not cached."""

    def compute(chunk):
        # Slicing `EncodedRows` computes the features.
        return run.distribution.gathered(
            lambda own: rows[chunk.start + own.start : chunk.start + own.stop],
            chunk.stop - chunk.start,
        )

    name = run.cache(f"features/{part}.npy")
    _write_rows(run, name, len(rows) if stays else 0, compute)


def save_rows(run, name, function, rows, stays=True):
    """Write `function` of all rows to an `.npy` file and return it, memory-mapped.

    Without `stays` the file lasts until the stage ends.
    """
    graph = compiled(function)

    def compute(chunk):
        return run.distribution.map(graph, rows[chunk])

    return np.load(_write_rows(run, name, len(rows), compute, stays), mmap_mode="r")


def _write_rows(run, name, n, compute, stays=True):
    """Write `n` rows of `compute` to an `.npy` file, resuming after an interruption."""
    stage, _, file = name.partition("/")
    # Checkpoints last until the stage is done or restarts.
    path = run.folder.stage(stage) / CHECKPOINTS / file
    target = run.path(name) if stays else path
    at_once = CHUNK * run.distribution.replicas
    with contextlib.ExitStack() as stack:
        rows = None
        if run.is_chief:
            progress, seconds = path.with_suffix(".json"), run.settings.checkpoint_seconds
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


def load_rows(run, name):
    """Load memory-mapped rows; raise `RunFailed` if the file is missing or damaged."""
    with _readable(run, name) as path:
        return np.load(path, mmap_mode="r")


def save_model(run, stage, model):
    """Save a stage's trained Keras model."""
    if not run.is_chief:
        return
    with atomic_write(run.path(f"{stage}/model.keras"), suffix=".keras") as temporary:
        model.save(temporary)


def load_part(run, stage):
    """Load the part that a stage has trained, which computes in float32."""
    if stage == "features":
        return load_primary(run)
    model = load_model(run, stage)
    return as_float32(model) if stage == "autoencoder" else model


def load_model(run, stage):
    """Load a stage's trained Keras model; raise `RunFailed` if it is missing or damaged."""
    with _readable(run, f"{stage}/model.keras") as path:
        return keras.models.load_model(path, compile=False)


def save_arrays(run, name, **arrays):
    """Write named arrays to a file in the run's folder."""
    if not run.is_chief:
        return
    with atomic_write(run.path(name), suffix=".npz") as temporary:
        np.savez(temporary, **arrays)


def load_arrays(run, name):
    """Load named arrays; raise `RunFailed` if the file is missing or damaged."""
    with _readable(run, name) as path, np.load(path) as stored:
        return dict(stored)


@contextlib.contextmanager
def _readable(run, name):
    """Context with the path of a file; an error of reading becomes `RunFailed`."""
    path = run.path(name)
    try:
        yield path
    except _UNREADABLE as error:
        hint = f"stage_fresh:{name.partition('/')[0]}"
        raise RunFailed(f"Cannot read {path} ({in_short(error)}).", hint=hint) from error
