"""Feature maps of images: recomputed when read, or cached on disk."""

import math
import re

import keras
import numpy as np

from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.training.distribution import Distribution

# Images per device and call. The number is fixed because other batch sizes round differently.
AT_ONCE = 128
_UNITS = {"MB": 1e6, "GB": 1e9, "TB": 1e12}


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


def disk_limit(limit=100.0):
    """Return the disk limit of features in bytes, from a number of GB or text like "500 MB"."""
    found = re.fullmatch(r"([\d.]+) ?([MGT]B)?", str(limit).upper())
    try:
        return float(found[1]) * _UNITS[found[2] or "GB"]
    except (TypeError, ValueError):
        raise ValueError(
            "`limit` must be a number of GB, zero or more, or have a unit, as 500MB, 20GB or 2TB. "
            f"Received: limit={limit!r}"
        ) from None
