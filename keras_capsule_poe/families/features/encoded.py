"""Features of images: computed when they are asked for, and where they are kept on disk."""

import math
import re

import keras
import numpy as np

from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.training.distribution import Distribution

# Images that a device encodes together, always as many: graphs for other numbers round differently.
AT_ONCE = 128
_UNITS = {"MB": 1e6, "GB": 1e9, "TB": 1e12}


class EncodedRows:
    """Feature maps of images, as an array whose rows are computed each time they are asked for.

    The same rows always have the same numbers, whatever is asked with them. Large filters take few
    multiplications, see `ConvAutoencoder.fast`.

    Args:
        autoencoder: `ConvAutoencoder`.
        images: Array (N, H, W, C), uint8, or what is indexed as one.
        distribution: `Distribution` whose devices compute them; None: the first one.

    Examples:

    >>> from keras_capsule_poe import ConvAutoencoder
    >>> autoencoder = ConvAutoencoder(filters=4)
    >>> autoencoder.build((None, 28, 28, 1))
    >>> rows = EncodedRows(autoencoder, np.zeros((10, 28, 28, 1), np.uint8))
    >>> rows.shape, rows[2:5].shape, rows[np.array([7])].dtype
    ((10, 6, 6, 4), (3, 6, 6, 4), dtype('float16'))
    """

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
    """Bytes that the feature maps (h, w, F) of so many images take on disk.

    Examples:

    >>> feature_bytes((6, 6, 128), images=1000)
    9216000
    """
    return EncodedRows.dtype.itemsize * math.prod(feature_shape) * images


def disk_limit(limit=100.0):
    """What features may take on disk, in bytes; above, they are recomputed for each batch.

    Args:
        limit: float, in GB, or text with a unit, `"500 MB"`, `"20GB"` or `"2TB"`.

    Raises:
        ValueError: If it is none of these, or below zero.

    Examples:

    >>> disk_limit("500 MB"), disk_limit(2)
    (500000000.0, 2000000000.0)
    """
    found = re.fullmatch(r"([\d.]+) ?([MGT]B)?", str(limit).upper())
    try:
        return float(found[1]) * _UNITS[found[2] or "GB"]
    except (TypeError, ValueError):
        raise ValueError(
            "`limit` must be a number of GB, zero or more, or have a unit, as 500MB, 20GB or 2TB. "
            f"Received: limit={limit!r}"
        ) from None
