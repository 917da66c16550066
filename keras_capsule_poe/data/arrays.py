"""Images and labels that are already in memory: arrays, and `tf.data` datasets of moderate size."""

import numpy as np

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.pixels import check_images, floats_to_bytes
from keras_capsule_poe.errors import DataError


def image_array(images, image_shape=None, name="images"):
    """Return images (N, H, W, C), uint8 or float32 in [0, 1], after checks of shape and range.

    Images (N, H, W) get one channel. Values stay as they are.
    """
    images = np.asarray(images)
    if images.dtype == object:
        raise DataError(f"`{name}` must have one size. Received: images of several sizes.")
    check_images(images, f"`{name}`", image_shape=image_shape)
    images = images if images.ndim == 4 else images[..., None]
    if not images.size:
        return images
    low, high = images.min(), images.max()
    if images.dtype == np.uint8:
        if high == 1:
            raise DataError(
                f"`{name}` of dtype uint8 must be in [0, 255]. Received: values up to 1. Convert "
                f"zeros and ones with `{name}.astype('float32')`."
            )
        return images
    if not (low >= 0 and high <= 1):
        missing = np.isnan(images).sum()
        received = f"{missing} NaN values" if missing else f"values from {low:g} to {high:g}"
        raise DataError(
            f"`{name}` must be floats in [0, 1] or uint8 in [0, 255]. Received: {received}."
        )
    return images.astype("float32", copy=False)


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
    parts = {"x": (x, y)}
    if validation_data is not None:
        if validation_split:
            raise DataError("Give `validation_data` or `validation_split`. Received: both.")
        is_pair = isinstance(validation_data, tuple)
        parts["validation_data"] = validation_data[:2] if is_pair else (validation_data, None)
    elif validation_split is not None and not 0 < validation_split < 1:
        raise DataError(
            "`validation_split` must be between 0 and 1, both excluded. "
            f"Received: validation_split={validation_split!r}."
        )
    train, *held_out = _image_sets({name: _read(*part, name) for name, part in parts.items()})
    if held_out:
        return ImageData(train, *held_out, held_out=held_out[0])
    n = None if validation_split is None else max(1, round(validation_split * len(train)))
    data = ImageData(train, train.head(1)).hold_out(n)
    # There are no test images: nothing is measured on them.
    return ImageData(data.train, data.held_out, held_out=data.held_out)


def _image_sets(parts):
    """Return the `ImageSet` of each pair (images, labels); equal words get equal numbers."""
    pixels, given = {}, {}
    for name, (images, labels) in parts.items():
        images = image_array(images, name=name)
        check_images(images, f"`{name}`", channels=(1, 2, 3))
        # Floats are rounded to the nearest of 256 levels.
        pixels[name] = images if images.dtype == np.uint8 else floats_to_bytes(images, name)
        if labels is not None:
            labels = np.asarray(labels)
            labels = labels.astype(str) if labels.dtype == object else labels
            is_rows = labels.ndim == 2 and labels.shape[1] > 1
            given[name] = labels.argmax(axis=1) if is_rows else labels
    sizes = {name: len(images) for name, images in pixels.items()}
    numbers, class_names = number_labels(given, sizes, is_strict=False)

    def image_set(name):
        found = {"labels": numbers[name], "class_names": class_names} if name in given else {}
        return ImageSet(np.ascontiguousarray(pixels[name]), **found, name=name)

    return [image_set(name) for name in pixels]


def number_labels(given, sizes, class_names=None, is_strict=True):
    """Return int64 labels by name, (N,) or (N, K) for K labels an image, and class names or None.

    Args:
        given: dict of arrays of labels: integers or words (N,) or (N, K), or zeros and ones with
            one column for each class. Equal words get equal numbers in all arrays.
        sizes: dict of the number of images that each array labels.
        class_names: array of str, names of integer labels, or None.
        is_strict: bool; if False, the values of numbers are not checked.
    """
    for name, labels in given.items():
        is_known = labels.ndim in (1, 2) and labels.dtype.kind in "iubfUS"
        if not is_known or len(labels) != sizes[name]:
            raise DataError(
                f"labels of {name} must be integers or strings of shape ({sizes[name]},), one "
                "label per image, or have a row for each image. "
                f"Received: shape {labels.shape} and dtype {labels.dtype}."
            )
    # Keras' data sets store labels as (N, 1).
    given = {
        name: labels[:, 0] if labels.shape[1:] == (1,) else labels for name, labels in given.items()
    }
    if {labels.dtype.kind in "US" for labels in given.values()} == {True}:
        words = np.unique(np.concatenate([labels.ravel() for labels in given.values()]))
        numbers = {name: np.searchsorted(words, labels) for name, labels in given.items()}
        # Bytes, as older programs write them.
        texts = [word.decode() if isinstance(word, bytes) else str(word) for word in words.tolist()]
        return {name: labels.astype(np.int64) for name, labels in numbers.items()}, tuple(texts)
    found = {
        name: _numbers(name, labels)
        if is_strict or labels.dtype.kind in "US"
        else labels.astype(np.int64)
        for name, labels in given.items()
    }
    if class_names is None or not found:
        return found, None
    texts = tuple(map(str, class_names.ravel().tolist()))
    largest = max(labels.max() for labels in found.values())
    if class_names.dtype.kind != "U" or largest >= len(texts):
        raise DataError(
            f"`class_names` must hold a string for each label from 0 to {largest}. "
            f"Received: {len(texts)} values of dtype {class_names.dtype}."
        )
    return found, texts


def _numbers(what, labels):
    """Return int64 labels (N,) or (N, K) of an array of numbers."""
    if labels.ndim == 2 and np.isin(labels, (0, 1)).all():
        counts = np.unique(labels.sum(axis=1).astype(int))
        if len(counts) > 1 or counts[0] == 0:
            raise DataError(
                f"{what} has a column for each class, and must give every image equally many "
                f"labels, at least one. Received: {counts.min()} to {counts.max()} labels an image."
            )
        found = np.nonzero(labels)[1].reshape(len(labels), -1)
        return found[:, 0] if counts[0] == 1 else found
    if labels.dtype.kind not in "iu":
        raise DataError(
            f"{what} must be integers or strings, or zeros and ones with one column for each "
            f"class. Received: shape {labels.shape} and dtype {labels.dtype}."
        )
    if labels.min() < 0 or labels.max() > np.iinfo(np.int64).max:
        raise DataError(
            f"{what} must number classes from 0 on. "
            f"Received: labels from {labels.min()} to {labels.max()}."
        )
    return labels.astype(np.int64)


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
    pairs = [(*each, None) if isinstance(each, tuple) else (each, None) for each in elements]
    images, labels = zip(*(pair[:2] for pair in pairs))
    # Elements (H, W, C) are single images. (N, H, W) cannot be told apart, so a batch has channels.
    join = np.concatenate if np.ndim(images[0]) == 4 else np.stack
    try:
        return join(images), None if labels[0] is None else join(labels)
    except ValueError as error:
        raise DataError(f"`{name}` must yield images of one size ({error}).") from error
