"""Images and labels of Python: arrays, and streams of moderate size, which are read to memory."""

import dataclasses
import numbers
import os

import numpy as np

from keras_capsule_poe.data.groups import number_groups
from keras_capsule_poe.data.hub import is_hub, read_rows
from keras_capsule_poe.data.image_set import ImageData, ImageSet, notes_on
from keras_capsule_poe.data.labels import DATA_VERSION, Part, number_labels
from keras_capsule_poe.data.pixels import check_images, check_memory, fit_images, floats_to_bytes
from keras_capsule_poe.data.streams import in_blocks, mixed
from keras_capsule_poe.errors import DataError


def number_array(images, name="images"):
    """Return an array of real numbers; raise `DataError` for other and for masked arrays."""
    if np.ma.is_masked(images):
        raise DataError(
            f"`{name}` must have no masked values. Received: a masked array. "
            f"Fill them, such as `{name}.filled(0)`."
        )
    try:
        images = np.asarray(images)
    except ValueError:
        images = np.empty(0, object)
    if images.dtype == object and not images.ndim:
        raise DataError(f"`{name}` must be an array of images. Received: {str(images):.80}.")
    if images.dtype == object:
        raise DataError(f"`{name}` must have one size. Received: images of several sizes.")
    if images.dtype.kind not in "biufV":
        raise DataError(f"`{name}` must be real numbers. Received: dtype {images.dtype}.")
    return images


def image_array(images, image_shape=None, name="images"):
    """Return images (N, H, W, C), uint8 or float32 in [0, 1], after checks of shape and range.

    Images (N, H, W) get one channel. Values stay as they are.
    """
    images = number_array(images, name)
    if images.dtype.kind in "bi" or images.dtype.kind == "u" and images.dtype != np.uint8:
        _refuse_integers(images, name)
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


def _refuse_integers(images, name):
    """Raise `DataError` for integers of another type than uint8, with the conversion they need."""
    low, high = (images.min(), images.max()) if images.size else (0, 255)
    advice = "Divide them by the value of white, as floats."
    if low >= 0 and high <= 1:
        advice = f"Convert zeros and ones with `{name}.astype('float32')`."
    elif low >= 0 and high <= 255:
        advice = f"Convert them with `{name}.astype('uint8')`."
    raise DataError(
        f"`{name}` must be uint8 in [0, 255] or floats in [0, 1]. Received: dtype {images.dtype}, "
        f"values from {int(low)} to {int(high)}. {advice}"
    )


def image_data(
    x, y=None, validation_data=None, validation_split=None, groups=None, data_version=DATA_VERSION,
    limit=None, held_out=None, grey=False,
):  # fmt: skip
    """Return the `ImageData` of the arguments of `fit`.

    Args:
        x: Images (N, H, W) or (N, H, W, C), uint8 or floats in [0, 1]; or a stream of images or
            of pairs (images, labels), which is read into memory: a `tf.data.Dataset`, batched or
            not, a `PyDataset`, or an iterator of batches; or a `Dataset` of the package
            `datasets`, with labels if it has them; or an `ImageData`, which is returned.
        y: Labels (N,) in any form that `labels.Part` takes, or None.
        validation_data: Images, a pair (images, labels), a stream, or None.
        validation_split: float in (0, 1), the fraction of the images that is held out: the last
            ones, or some of each class if those of a class follow one another. None: 5%, at most
            1000.
        groups: Integers or strings (N,): images of one group are not separated. Or None.
        data_version: int, see `load_images`.
        limit: int, number of training images to use, held-out ones included. None: all.
        held_out: int, number of images that are held out, or None.
        grey: see `load_images`.
    """
    if isinstance(x, ImageData):
        others = {"y": y, "validation_data": validation_data, "groups": groups}
        if given := [name for name, value in others.items() if value is not None]:
            raise DataError(
                f"`{given[0]}` must be None if `x` is an `ImageData`, which has parts and labels. "
                f"Received: `x` and `{given[0]}`."
            )
        return x
    given = {"training": (x, y, "x")}
    if validation_data is not None:
        if validation_split:
            raise DataError("Give `validation_data` or `validation_split`. Received: both.")
        given["held-out"] = (*_given_pair(validation_data), "validation_data")
    elif validation_split is not None and not 0 < validation_split < 1:
        raise DataError(
            "`validation_split` must be between 0 and 1, both excluded. "
            f"Received: validation_split={validation_split!r}."
        )
    (train, *held_out_images), notes = _image_sets(given, data_version, grey)
    if groups is not None:
        numbers = number_groups({"training": Part(groups, len(train), "`groups`")})["training"]
        train = dataclasses.replace(train, extras={"groups": numbers})
    is_former = data_version < 3
    if groups is None and not is_former and not held_out_images and in_blocks(train.labels):
        train = train.reordered(mixed(train.labels))
    train = train.head(len(train) if limit is None else limit)
    if held_out_images:
        data = ImageData(train, *held_out_images, held_out=held_out_images[0])
        return dataclasses.replace(data, notes=(*notes, *notes_on(data)))
    if len(train) < 2:
        raise DataError(
            "`x` must have at least two images: one is held out to monitor the training. "
            f"Received: {len(train)}."
        )
    n = held_out
    if validation_split is not None:
        n = max(1, round(validation_split * len(train)))
    data = ImageData(train, train.head(0)).hold_out(n, in_order=is_former)
    # There are no test images: nothing is measured on them.
    return ImageData(data.train, data.held_out, held_out=data.held_out, notes=notes)


def _image_sets(given, data_version, grey):
    """Return the `ImageSet` of each triple (images, labels, name), and notes on their labels."""
    pixels, labels = {}, {}
    for part, (x, y, name) in given.items():
        images, found = _read(x, y, name)
        images = image_array(images, name=name)
        check_images(images, f"`{name}`", channels=(1, 2, 3))
        # Floats are rounded to the nearest of 256 levels.
        images = images if images.dtype == np.uint8 else floats_to_bytes(images, name)
        pixels[part] = fit_images(images, grey=grey)
        what = "`y`" if name == "x" and y is not None else f"labels of `{name}`"
        labels[part] = Part(found, len(images), what)
    numbered = number_labels(labels, former=data_version < 3)

    def image_set(part):
        known = numbered.labels.get(part)
        names = None if known is None else numbered.class_names
        return ImageSet(np.ascontiguousarray(pixels[part]), known, names, given[part][2])

    return [image_set(part) for part in pixels], numbered.notes


# Test images that are encoded to say what a model knows.
KNOWN = 2_000


def known_images(images, model):
    """Return an `ImageSet` of the first images of one, of an `ImageData`, or of an array.

    Raises:
        DataError: If they are no images of the model.
    """
    if isinstance(images, ImageData):
        images = images.test
    if not hasattr(images, "head"):
        pixels = image_array(images, model.image_shape)[:KNOWN]
        images = ImageSet(
            pixels if pixels.dtype == np.uint8 else floats_to_bytes(pixels, "`images`")
        )
    check_images(images.images, "`images`", image_shape=model.image_shape)
    if not len(images):
        raise DataError("`images` must be one image or more. Received: none.")
    return images.head(KNOWN)


def is_dataset(x):
    """Return whether x is a `tf.data.Dataset` or a `PyDataset`."""
    import keras

    return hasattr(x, "as_numpy_iterator") or isinstance(x, keras.utils.PyDataset)


def read_images(dataset, name="images"):
    """Return the images of a dataset as an array, without their labels."""
    return _read(dataset, None, name)[0]


def _read(x, y, name):
    """Return arrays of images and labels, read from a stream if `x` is one."""
    if is_hub(x) and y is None:
        return read_rows(x, name)
    if x is None or isinstance(x, (str, bytes, os.PathLike, dict, numbers.Number)):
        hint = " `keras_capsule_poe.train` takes names and paths." * hasattr(x, "join")
        raise DataError(
            f"`{name}` must be an array of images (N, H, W) or (N, H, W, C), or a dataset. "
            f"Received: {name}={x!r:.80}.{hint}"
        )
    elements = _elements(x, name)
    if elements is None:
        return x, y
    if y is not None:
        raise DataError(f"`y` must be None if `{name}` is a stream. It yields its own labels.")
    pairs, size = [], 0
    for element in elements:
        pairs.append(_pair(element, name))
        size += pairs[-1][0].nbytes
        # Two copies: the list of batches, then the joined array.
        check_memory(f"the first {len(pairs):,} batches of `{name}`", 2 * size)
    if not pairs:
        raise DataError(f"`{name}` must yield images. Received: an empty stream.")
    images, labels = zip(*pairs)
    # Elements (H, W, C) are single images. (N, H, W) cannot be told apart, so a batch has channels.
    is_single = hasattr(x, "as_numpy_iterator") and np.ndim(images[0]) != 4
    try:
        images = (np.stack if is_single else np.concatenate)(images)
    except ValueError as error:
        raise DataError(f"`{name}` must yield images of one size ({error}).") from error
    if any((each is None) != (labels[0] is None) for each in labels):
        raise DataError(f"`{name}` must yield labels with all images or with none.")
    return images, None if labels[0] is None else _joined(labels, is_single)


def _joined(labels, is_single):
    """Return the labels of single images or of batches as one array or list."""
    if all(hasattr(each, "__array__") for each in labels):
        arrays = list(map(np.asarray, labels))
        if len({(each.shape[not is_single :], each.dtype.kind) for each in arrays}) == 1:
            return (np.stack if is_single else np.concatenate)(arrays)
    if is_single:
        return list(labels)
    batches = [each.to_list() if hasattr(each, "row_splits") else each for each in labels]
    return [row for batch in batches for row in batch]


def _elements(x, name):
    """Return an iterable of the elements of a stream, or None for arrays and lists."""
    import keras

    if hasattr(x, "as_numpy_iterator"):
        count = int(x.cardinality())
        is_endless, elements = count == -1, x.as_numpy_iterator()
    elif isinstance(x, keras.utils.PyDataset):
        is_endless = x.num_batches is None
        elements = () if is_endless else (x[k] for k in range(x.num_batches))
    elif (
        hasattr(x, "__iter__") and not hasattr(x, "__array__") and not isinstance(x, (list, tuple))
    ):
        is_endless, elements = False, x
    else:
        return None
    if is_endless:
        raise DataError(f"`{name}` must have an end: it is read into memory. Received: it repeats.")
    return elements


def _given_pair(given):
    """Return (images, labels or None) of `validation_data`."""
    is_pair = isinstance(given, tuple) or (
        isinstance(given, list)
        and len(given) in (2, 3)
        and np.ndim(given[0]) > 2 > np.ndim(given[1])
    )
    pair = tuple(given) if is_pair else (given, None)
    if len(pair) == 3 and pair[2] is None:
        pair = pair[:2]
    if len(pair) > 2:
        raise DataError(
            "`validation_data` must be images or a pair (images, labels). "
            f"Received: a tuple of {len(pair)}. Sample weights are not used here."
        )
    return (*pair, None)[:2]


def _pair(element, name):
    """Return (images, labels or None) of an element of a stream."""
    if hasattr(element, "keys"):
        raise DataError(
            f"`{name}` must yield images or pairs (images, labels). Received: dicts with "
            f"{', '.join(map(repr, element))}."
        )
    parts = element if isinstance(element, (tuple, list)) else (element,)
    if len(parts) > 2:
        raise DataError(
            f"`{name}` must yield images or pairs (images, labels). Received: {len(parts)} "
            "arrays. Sample weights are not used here."
        )
    images, labels = (*parts, None)[:2]
    return np.asarray(images), labels
