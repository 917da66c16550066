"""Images from a tensorflow-datasets data set."""

import functools
import warnings

import numpy as np

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.ordering import hold_out
from keras_capsule_poe.data.pixels import check_room, fit_image, fit_images, floats_to_bytes
from keras_capsule_poe.data.sources.tfds_prepare import prepared_builder
from keras_capsule_poe.data.store import Source, joined, open_store
from keras_capsule_poe.errors import DataError, first_line, listing

_BATCH = 1024
_SMALL = 64 * 64
# Columns of the two cameras of a stereo pair, and extra columns.
_STEREO = {"smallnorb": ("image", "image2")}
_EXTRAS = {"smallnorb": ("instance", "label_elevation", "label_azimuth", "label_lighting")}
# Data sets stored with rows and columns exchanged.
_LYING = ("emnist",)


def load_tfds(name, options):
    """Load the splits `train` and `test` of data set `name`, or its nearest equivalents."""
    options.refuse("a data set of tensorflow-datasets", "skip_broken")
    builder = prepared_builder(name, options)
    columns = _Columns(builder, options)
    splits = [split for split, info in builder.info.splits.items() if info.num_examples]
    train = "train" if "train" in splits or len(splits) != 1 else splits[0]
    if train not in splits:
        raise DataError(
            f"data set {name!r} must have a split 'train'. Received: splits {listing(splits)}."
        )
    test = next((split for split in ("test", "validation") if split in splits), None)
    read = columns.read if options.store is None else columns.stored
    if test not in (None, train):
        return ImageData(*read((train, test), options.limit))
    (everything,) = read((train,))
    no_classes = np.zeros(len(everything))
    train, test = hold_out(no_classes, options.test_fraction, options.seed)
    return ImageData(everything.take(train[: options.limit]), everything.take(test))


class _Columns:
    """Columns of a data set: images (of one or two cameras), any labels, and extras."""

    def __init__(self, builder, options):
        self.builder, self.options = builder, options
        self.name = builder.info.name
        stereo = _STEREO.get(self.name) if options.column is None else None
        self.cameras = stereo or (self._choose_image(options.column),)
        self.image = self.cameras[0]
        self.label, self.class_names = self._choose_label()
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

        columns = list(self._features(tfds.features.Image))
        if column is None and len(columns) == 1:
            return columns[0]
        if column in columns:
            return column
        if not columns:
            raise DataError(
                f"data set {self.name!r} has no column of images; choose another data set. "
                f"Received: columns {listing(self._features(object))}."
            )
        received = "none" if column is None else repr(column)
        raise DataError(
            f"`column` must name a column of images of data set {self.name!r}; available: "
            f"{listing(columns)}. Received: {received}.",
            hint="column",
        )

    def _choose_label(self):
        import tensorflow_datasets as tfds

        labels = self._features(tfds.features.ClassLabel)
        name = "label" if "label" in labels else next(iter(labels), None)
        return name, name and tuple(labels[name].names)

    def read(self, splits, limit=None):
        """Read each split as an `ImageSet`, the first one up to `limit` images."""
        limits = (limit, *(None for _ in splits[1:]))
        return [self._read(*part) for part in zip(splits, limits)]

    def _read(self, split, limit):
        n = self._count(split)
        n = n if limit is None else min(n, limit)
        height, width = self.options.image_size or self.shape[:2]
        grey = self.options.grey and self.shape[-1] == 3
        channels = 1 if grey else self.shape[-1] * len(self.cameras)
        check_room(n, (height, width, channels))
        images = np.empty((n, height, width, channels), np.uint8)
        numbers = {name: np.empty(n, np.int64) for name in (self.label, *self.extras) if name}
        done = 0
        for pixels, known in self._blocks(split, n):
            images[done : done + len(pixels)] = pixels
            for name, array in numbers.items():
                array[done : done + len(pixels)] = known[name]
            done += len(pixels)
        return self._known(split, self._image_set(images, numbers))

    def stored(self, splits, limit=None):
        """Read each split as `read` does, through a store on disk."""
        info, options = self.builder.info, self.options
        sizes = [self._count(split) for split in splits]
        about = {
            "name": info.full_name,
            "path": str(self.builder.data_path),
            "columns": self.cameras,
            "image_size": options.image_size,
            "grey": options.grey,
            "splits": [[split, *_files(info.splits[split])] for split in splits],
        }
        parts = [functools.partial(self._blocks, *part) for part in zip(splits, sizes)]
        read = joined(list(zip(sizes, parts)))
        source = Source(info.full_name, about, sum(sizes), read)
        images, numbers = open_store(source, options.store, options.report)
        first, *rest = self._image_set(images, numbers).split(sizes[0])
        found = zip(splits, [first.take(slice(limit)), *rest])
        return [self._known(split, images) for split, images in found]

    def _count(self, split):
        return self.builder.info.splits[split].num_examples

    def _image_set(self, images, numbers):
        extras = dict(numbers)
        labels = extras.pop(self.label, None)
        return ImageSet(images, labels, self.class_names, self.name, extras)

    def _blocks(self, split, n, first=0):
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
            raise DataError(
                f"the prepared files of data set {self.name!r} cannot be read; delete "
                f"{self.builder.data_path} and prepare it again ({first_line(error)})."
            ) from error
        if done != n:
            raise DataError(
                f"split {split!r} of data set {self.name!r} must hold {n} images; delete "
                f"{self.builder.data_path} and prepare it again. Received: {done} images."
            )

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
        # Its thread may delay the end of a stream, see `batching.AHEAD`.
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


def _files(split):
    """Return the number of images in each of a split's files, and their total bytes."""
    return list(split.shard_lengths), split.num_bytes
