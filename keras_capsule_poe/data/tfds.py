"""Images from a tensorflow-datasets data set, which is prepared first if needed."""

import difflib
import re
import socket
import threading
import urllib.parse
import urllib.request
import warnings

import numpy as np

from keras_capsule_poe.data.array_names import column_of
from keras_capsule_poe.data.composed import ALIASES
from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.pixels import fit_image, fit_images, floats_to_bytes
from keras_capsule_poe.data.store import Source, read_parts
from keras_capsule_poe.data.streams import hold_out
from keras_capsule_poe.errors import DataError, first_line, listing, reading
from keras_capsule_poe.io.atomic import user_path

# tensorflow-datasets retries for more than three minutes when offline.
TIMEOUT_SECONDS = 3.0
_BATCH = 1024
_SMALL = 64 * 64
# Columns of the two cameras of a stereo pair, and extra columns.
_STEREO = {"smallnorb": ("image", "image2")}
_EXTRAS = {"smallnorb": ("instance", "label_elevation", "label_azimuth", "label_lighting")}
# Data sets stored with rows and columns exchanged.
_LYING = ("emnist",)


def load_tfds(name, options):
    """Load the splits `train` and `test` of data set `name`, or its nearest equivalents."""
    refused = ("skip_broken", "groups", *options.of_folders)
    options.refuse("a data set of tensorflow-datasets", *refused)
    builder = prepared_builder(name, options)
    columns = _Columns(builder, options)
    splits = [split for split, info in builder.info.splits.items() if info.num_examples]
    train = "train" if "train" in splits or len(splits) != 1 else splits[0]
    if train not in splits:
        raise DataError(
            f"data set {name!r} must have a split 'train'. Received: splits {listing(splits)}."
        )
    test = next((split for split in ("test", "validation") if split in splits), None)
    others = [
        f"{split} ({builder.info.splits[split].num_examples:,} images)"
        for split in splits
        if split not in (train, test)
    ]
    notes = (f"Left out: the splits {listing(others)}.",) if others else ()
    if test not in (None, train):
        return ImageData(*columns.read((train, test), options.limit), notes=notes)
    (everything,) = columns.read((train,))
    # Not drawn by class, so that the test images are those of earlier versions.
    train, test = hold_out(np.zeros(len(everything)), options.test_fraction, options.seed)
    sets = everything.take(train[: options.limit]), everything.take(test)
    return ImageData(*sets, notes=notes)


class _Columns:
    """Columns of a data set: images (of one or two cameras), any labels, and extras."""

    def __init__(self, builder, options):
        self.builder, self.options = builder, options
        self.name = builder.info.name
        stereo = _STEREO.get(self.name) if options.column is None else None
        self.cameras = stereo or (self._choose_image(options.column),)
        self.image = self.cameras[0]
        self.label, self.class_names = self._choose_label(options.label_column)
        self.extras = _EXTRAS.get(self.name, ())
        self.shape = builder.info.features[self.image].shape
        if self.shape[-1] not in (1, 3):
            raise DataError(
                f"column {self.image!r} of data set {self.name!r} must hold grey or RGB images. "
                f"Received: shape {self.shape}."
            )
        if None in self.shape and options.image_size is None:
            raise DataError(
                f"the images of data set {self.name!r} differ in size, and `image_size` is not "
                f"given. Received: shape {self.shape}.",
                hint="image_size",
            )

    def _features(self, kind):
        features = self.builder.info.features
        # A data set without named columns has a single feature instead of a mapping.
        named = features.items() if hasattr(features, "items") else ()
        return {name: feature for name, feature in named if isinstance(feature, kind)}

    def _choose_image(self, column):
        import tensorflow_datasets as tfds

        images, every = self._features(tfds.features.Image), self._features(object)
        what = f"a column of images of data set {self.name!r}"
        return column_of("column", column, images, what, every)

    def _choose_label(self, column):
        import tensorflow_datasets as tfds

        labels = self._features(tfds.features.ClassLabel)
        name = "label" if "label" in labels else next(iter(labels), None)
        if column is not None:
            what = f"a column of classes of data set {self.name!r}"
            name = column_of("label_column", column, labels, what, self._features(object))
        return name, name and tuple(labels[name].names)

    def read(self, splits, limit=None):
        """Read each split as an `ImageSet`, the first one up to `limit` images."""
        info, options = self.builder.info, self.options
        sizes = [info.splits[split].num_examples for split in splits]
        if options.store is None and limit is not None:
            sizes[0] = min(sizes[0], limit)
        about = {
            "name": info.full_name,
            "path": str(self.builder.data_path),
            "columns": self.cameras,
            "image_size": options.image_size,
            "grey": options.grey,
            # Number of images in each file of a split, and their total bytes.
            "splits": [
                [split, list(info.splits[split].shard_lengths), info.splits[split].num_bytes]
                for split in splits
            ],
        }

        def blocks(part, first):
            return self._blocks(splits[part], sizes[part], first)

        source = Source(info.full_name, about, sizes, blocks)
        found = []
        for split, (images, numbers) in zip(
            splits, read_parts(source, options.store, options.report)
        ):
            labels = numbers.pop(self.label, None)
            whole = ImageSet(images, labels, self.class_names, self.name, numbers)
            found.append(self._known(split, whole if found else whole.head(limit)))
        return found

    def _blocks(self, split, n, first):
        """Iterate over images `first` .. `n - 1` in blocks: fitted images, dict of numbers."""
        size, grey = self.options.image_size, self.options.grey
        done = first
        try:
            for batch in self._batches(split, n, first):
                pixels = self._pixels(batch)
                if None in self.shape:
                    pixels = fit_image(pixels, size, grey)[np.newaxis]
                else:
                    pixels = fit_images(pixels, size, grey)
                names = [name for name in (self.label, *self.extras) if name]
                yield pixels, {name: np.atleast_1d(batch[name]).astype(np.int64) for name in names}
                done += len(pixels)
        except DataError:
            raise
        except Exception as error:
            what = f"the prepared files of data set {self.name!r} cannot be read"
            raise DataError(f"{what}{self._remedy(error)} ({first_line(error)}).") from error
        if done != n:
            raise DataError(
                f"split {split!r} of data set {self.name!r} must hold {n} images; delete "
                f"{self.builder.data_path} and prepare it again. Received: {done} images."
            )

    def _remedy(self, error):
        """Return what to do about an error of reading: files that are whole are not to blame."""
        import tensorflow as tf

        is_damaged = isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError))
        if is_damaged:
            return f"; delete {self.builder.data_path} and prepare it again"
        return f" from {self.builder.data_path}"

    def _known(self, split, images):
        """Return `images` without labels, with a warning, if any label is unknown (-1)."""
        unknown = 0 if images.labels is None else np.count_nonzero(images.labels < 0)
        if not unknown:
            return images
        warnings.warn(
            f"{unknown} of the {len(images)} images in split {split!r} of data set {self.name!r} "
            "have no label (-1): no label of that split is used",
            stacklevel=2,
        )
        return ImageSet(images.images, None, images.class_names, self.name, images.extras)

    def _pixels(self, batch):
        """Return upright uint8 images of a batch, stereo cameras as channels."""
        pixels = [self._as_bytes(batch[name]) for name in self.cameras]
        whole = pixels[0] if len(pixels) == 1 else np.concatenate(pixels, axis=-1)
        return np.swapaxes(whole, -3, -2) if self.name in _LYING else whole

    def _batches(self, split, n, first):
        """Iterate over dicts of NumPy arrays: single images if sizes differ, else batches."""
        import tensorflow_datasets as tfds

        wanted = {name: True for name in (*self.cameras, self.label, *self.extras) if name}
        others = set(self._features(object)) - set(wanted)
        # The cache would be a second copy in memory.
        config = tfds.ReadConfig(try_autocache=False)
        # Its thread may delay the end of a stream, see `streams.AHEAD`.
        config.options.autotune.enabled = False
        if None not in self.shape and self.shape[0] * self.shape[1] <= _SMALL:
            # For small images, switching threads costs more than decoding.
            config.options.threading.private_threadpool_size = 1
        dataset = self.builder.as_dataset(
            split=split,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding(wanted) if others else None,
            read_config=config,
        )
        # Slices of the split would give another order.
        dataset = dataset.take(n).skip(first)
        return tfds.as_numpy(dataset if None in self.shape else dataset.batch(_BATCH))

    def _as_bytes(self, pixels):
        """Convert 16-bit pixels, or floats in [0, 1], to uint8."""
        if pixels.dtype == np.uint8:
            return pixels
        units = pixels / 65535 if pixels.dtype == np.uint16 else pixels
        return floats_to_bytes(units, f"column {self.image!r} of data set {self.name!r}")


# Preparation


def is_online():
    """Return whether the main data host, or the proxy, accepts connections."""
    proxy = urllib.request.getproxies().get("https")
    address = urllib.parse.urlsplit(proxy or "https://storage.googleapis.com")
    host = address.hostname, address.port or 443
    answered = threading.Event()

    def connect():
        try:
            socket.create_connection(host, TIMEOUT_SECONDS).close()
            answered.set()
        except OSError:
            pass

    # In a thread, because name resolution has no timeout.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    return answered.is_set()


def prepared_builder(name, options):
    """Return the builder of data set `name` with its data downloaded and prepared."""
    builder = _find(name, options)
    # In this order, because tensorflow-datasets logs a warning for a missing folder.
    if not builder.data_path.exists() or not builder.is_prepared():
        _prepare(builder, options)
    return builder


def is_known(name):
    """Return whether tensorflow-datasets knows the plain name `name`."""
    import tensorflow_datasets as tfds

    return name in tfds.list_builders(with_community_datasets=False)


def _find(name, options):
    import tensorflow_datasets as tfds

    # tensorflow-datasets would look up `NAMESPACE:NAME` over the network.
    namespaced = re.match(r"\w*:[A-Za-z_]", name)
    try:
        if namespaced or not re.match(r"\w+", name):
            raise tfds.core.DatasetNotFoundError(name)
        return tfds.builder(name, data_dir=options.data_dir, try_gcs=False)
    except tfds.core.DatasetNotFoundError:
        pass
    except Exception as error:
        plain = _plain_name(name)
        if is_known(plain):
            known = tfds.builder(plain, data_dir=options.data_dir)
            configurations = listing(known.builder_configs) or "none"
            raise DataError(
                f"data set {plain!r} has version {known.version} and these configurations: "
                f"{configurations}. Received: {name!r}."
            ) from error
    names = ["digits", *ALIASES, *tfds.list_builders(with_community_datasets=False)]
    plain = re.sub(r"\W+", "_", _plain_name(name).lower())
    near = difflib.get_close_matches(plain, names, n=3)
    advice = f"did you mean {' or '.join(near)}?" if near else "use digits, mnist or fashion_mnist."
    raise DataError(
        "`dataset` must be 'digits', a folder or file of images, or a tensorflow-datasets "
        f"name. Received: {name!r}, which is none of them; {advice}"
    )


def _plain_name(name):
    """Return `mnist` for `mnist/config:3.0.1`."""
    return re.split("[/:]", name)[0]


def _prepare(builder, options):
    import tensorflow_datasets as tfds

    name = builder.info.full_name
    config, download_dir = None, None
    if options.manual_dir is not None:
        _check_archives(builder, options.manual_dir)
        config = tfds.download.DownloadConfig(manual_dir=options.manual_dir)
        # One folder per data set: unpacked archives are cached by file name, and MNIST and
        # Fashion-MNIST use the same names.
        download_dir = builder.data_dir_root / "downloads" / "manual_archives" / builder.name
    elif not is_online():
        raise DataError(
            f"data set {name!r} is not prepared in {builder.data_dir_root} (`data_dir`), and there "
            "is neither a network nor `manual_dir` to get it from.",
            hint="data_dir",
        )
    with reading(f"data set {name!r} could not be prepared", hint="data_dir"):
        builder.download_and_prepare(download_dir=download_dir, download_config=config)
    # tensorflow-datasets accepts any existing folder as prepared data.
    if not builder.is_prepared():
        raise DataError(
            f"data set {name!r} is incomplete; delete {builder.data_path} and try again."
        )


def _check_archives(builder, manual_dir):
    """Raise `DataError` if archives are missing and there is no network."""
    folder = user_path(manual_dir)
    if not folder.is_dir():
        raise DataError(f"`manual_dir` must be an existing folder. Received: {manual_dir}.")
    wanted = {info.filename for info in (builder.url_infos or {}).values() if info.filename}
    missing = sorted(name for name in wanted if not (folder / name).exists())
    # The list covers all configurations of a data set, so some archives may not be needed.
    needless = builder.builder_config is not None and len(missing) < len(wanted)
    if missing and not needless and not is_online():
        raise DataError(
            f"`manual_dir` lacks archives of data set {builder.info.full_name!r}, and there is no "
            f"network to download them; put {', '.join(missing[:6])} there. "
            f"Received: {manual_dir}."
        )
