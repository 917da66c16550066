"""Images that are already in memory: arrays, and `tf.data` datasets of moderate size."""

import numpy as np

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.pixels import floats_to_bytes
from keras_capsule_poe.errors import DataError


def image_array(images, image_shape=None, name="images"):
    """Return images (N, H, W, C), uint8 or float32 in [0, 1], after checks of shape and range.

    Images (N, H, W) get one channel. Values stay as they are.
    """
    images = np.asarray(images)
    if images.dtype == object:
        raise DataError(f"`{name}` must have one size. Received: images of several sizes.")
    shape = images.shape
    if images.ndim == 3 and (image_shape is None or shape[1:] == tuple(image_shape[:2])):
        images = images[..., None]
    if images.ndim != 4 or (image_shape is not None and images.shape[1:] != tuple(image_shape)):
        height, width, channels = image_shape or ("H", "W", "C")
        grey = f" or (N, {height}, {width})" if channels in (1, "C") else ""
        raise DataError(
            f"`{name}` must have shape (N, {height}, {width}, {channels}){grey}. "
            f"Received: shape {shape}."
        )
    if images.dtype == np.uint8:
        if images.size and images.max() == 1:
            raise DataError(
                f"`{name}` of dtype uint8 must be in [0, 255]. Received: values up to 1. Convert "
                f"zeros and ones with `{name}.astype('float32')`."
            )
        return images
    if images.dtype.kind != "f":
        raise DataError(
            f"`{name}` must be uint8 in [0, 255] or floats in [0, 1]. "
            f"Received: dtype {images.dtype}. Convert them with `{name}.astype('uint8')`."
        )
    if images.size and not (images.min() >= 0 and images.max() <= 1):
        raise DataError(
            f"`{name}` must be floats in [0, 1] or uint8 in [0, 255]. Received: {_range(images)}."
        )
    return images.astype("float32", copy=False)


def image_set(images, labels=None, name="x"):
    """Return the `ImageSet` of an array; floats are rounded to the nearest of 256 levels."""
    images = image_array(images, name=name)
    if images.shape[-1] not in (1, 2, 3):
        raise DataError(
            f"`{name}` must have 1, 2 or 3 channels in the last dimension. "
            f"Received: shape {images.shape}."
        )
    if images.dtype != np.uint8:
        images = floats_to_bytes(images, f"`{name}`")
    return ImageSet(np.ascontiguousarray(images), *_labels(labels, len(images)), name=name)


def image_data(x, y=None, validation_data=None, validation_split=None):
    """Return the `ImageData` of the arguments of `fit`.

    Args:
        x: Images (N, H, W) or (N, H, W, C), uint8 or floats in [0, 1]. A `tf.data.Dataset` of
            images, or of pairs (images, labels), is read into memory, batched or not.
        y: Labels (N,), integers or strings, one-hot rows (N, K), or None.
        validation_data: Images, a pair (images, labels), or None.
        validation_split: float in (0, 1), the fraction of the images, the last ones, that is held
            out. None: 5%, at most 1000.
    """
    x, y = _read(x, y, "x")
    train = image_set(x, y)
    if validation_data is None:
        if validation_split is None:
            return _with_test(ImageData(train, train.head(1)).hold_out())
        if not 0 < validation_split < 1:
            raise DataError(
                "`validation_split` must be between 0 and 1, both excluded. "
                f"Received: validation_split={validation_split!r}."
            )
        held_out = max(1, round(validation_split * len(train)))
        return _with_test(ImageData(train, train.head(1)).hold_out(held_out))
    if validation_split:
        raise DataError("Give `validation_data` or `validation_split`. Received: both.")
    pair = validation_data if isinstance(validation_data, tuple) else (validation_data, None)
    held_out = image_set(*_read(*pair[:2], "validation_data"), name="validation_data")
    return ImageData(train, held_out, held_out=held_out)


def _with_test(data):
    # There are no test images: nothing is measured on them.
    return ImageData(data.train, data.held_out, held_out=data.held_out)


def _read(x, y, name):
    """Return arrays of images and labels, read from a `tf.data.Dataset` if it is one."""
    if not hasattr(x, "as_numpy_iterator"):
        return x, y
    if y is not None:
        raise DataError(f"`y` must be None if `{name}` is a Dataset. It yields its own labels.")
    elements = list(x.as_numpy_iterator())
    if not elements:
        raise DataError(f"`{name}` must yield images. Received: an empty Dataset.")
    if isinstance(elements[0], dict):
        raise DataError(
            f"`{name}` must yield images or pairs (images, labels). Received: dicts with "
            f"{', '.join(map(repr, elements[0]))}."
        )
    pairs = [each if isinstance(each, tuple) else (each, None) for each in elements]
    images, labels = ([pair[k] for pair in pairs] for k in (0, 1 if len(pairs[0]) > 1 else 0))
    labels = None if len(pairs[0]) < 2 or labels[0] is None else labels
    # Elements (H, W, C) are single images. (N, H, W) cannot be told apart, so a batch has channels.
    join = np.concatenate if np.ndim(images[0]) == 4 else np.stack
    try:
        return join(images), None if labels is None else join(labels)
    except ValueError as error:
        raise DataError(f"`{name}` must yield images of one size ({error}).") from error


def _labels(labels, images):
    """Return int64 labels and class names, or two None."""
    if labels is None:
        return None, None
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2:
        labels = labels.argmax(axis=1)
    if labels.shape != (images,):
        raise DataError(
            f"`y` must have one label per image, {images} in all. Received: shape {labels.shape}."
        )
    if labels.dtype.kind in "USO":
        names, labels = np.unique(labels.astype(str), return_inverse=True)
        return labels.astype("int64"), tuple(names)
    return labels.astype("int64"), None


def _range(images):
    bad = np.isnan(images).sum()
    return f"{bad} NaN values" if bad else f"values from {images.min():g} to {images.max():g}"
