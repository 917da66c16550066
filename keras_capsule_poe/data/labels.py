"""Labels of any form, as numbers of classes with names.

`read_labels` is the only function that says which values are labels. `number_labels` numbers the
classes of images that are read now, `class_rows` makes the rows that a compiled classifier trains
on, and `check_classifier_labels` says whether a classifier can be trained on images.
"""

import collections
import math
import numbers
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_capsule_poe.errors import ConfigError, DataError, listing

# Version of the rules by which images and labels are read and split, see `load_images`.
DATA_VERSION = 3
_RULE = "must be integers or strings, one label an image, or have a row for each image"


class Words(NamedTuple):
    """Labels (N,) as numbers of words: each word is kept once, however many images have it."""

    numbers: np.ndarray
    words: tuple[str, ...]


class Part(NamedTuple):
    """Labels of one part of the images: in any form, the number of images, and a name for errors.

    Attributes:
        labels: Integers or strings (N,), (N, 1) or (N, K) for K labels an image; zeros and ones
            with a column for each class; `Words`; or None. Arrays, lists, series and tensors.
        n: int, N.
        what: str that messages call the labels, such as `` labels of `x` ``.
    """

    labels: Any
    n: int
    what: str


class Numbered(NamedTuple):
    """Labels of each part that has them, int64 (N,) or (N, K), class names, and notes (str)."""

    labels: dict[str, np.ndarray]
    class_names: tuple[str, ...] | None
    notes: tuple[str, ...]


def number_labels(
    parts: Mapping[str, Part], class_names: Any = None, former: bool = False
) -> Numbered:
    """Number the classes that occur in any part, in the order of their labels.

    Args:
        parts: dict from `"training"`, `"test"`, ... to `Part`. Equal labels get equal numbers.
        class_names: strings, the names of the labels 0, 1, ..., or None: a label is its own name.
        former: bool, number integers as versions before 0.3 did: by their own values, no names.

    Raises:
        DataError: If the values are no labels, or do not go together.

    Examples:

    >>> number_labels({"training": Part([2019, 4019, 2019], 3, "`y`")})
    Numbered(labels={'training': array([0, 1, 0])}, class_names=('2019', '4019'), notes=())
    """
    read = {name: read_labels(*part) for name, part in parts.items()}
    read = {name: labels for name, labels in read.items() if labels is not None}
    if not read:
        return Numbered({}, None, ())
    columns = 0
    for name, labels in read.items():
        if not isinstance(labels, Words) and labels.dtype.kind == "f":
            columns = max(columns, labels.shape[1])
            read[name] = _of_columns(labels, parts[name].what)
    _check_alike(read, parts)
    names = None if class_names is None else _strings(class_names)
    if any(_is_words(labels) for labels in read.values()):
        found, texts = _number_words(read, None if former else names)
    elif former or names is not None:
        found, texts = _named(read, parts, names), names
    else:
        found, texts = _number_values(read, parts, columns)
    notes = () if former or texts is None else missing_classes(found, texts)
    return Numbered(found, texts, notes)


def missing_classes(
    labels: Mapping[str, np.ndarray], class_names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return a line for each part of labels, by its name, in which a class does not occur."""
    notes = []
    for name, numbers_of_part in labels.items():
        counts = np.bincount(numbers_of_part.ravel(), minlength=len(class_names))
        absent = [class_names[k] for k in np.flatnonzero(counts == 0)]
        notes += [f"No {name} images of: {listing(absent, 5)}."] if absent else []
    return tuple(notes)


def read_labels(labels: Any, n: int | None = None, what: str = "`y`") -> Any:
    """Return labels as an array: the one place that says which values are labels.

    Args:
        labels: See `Part`.
        n: int, number of images; None: any number.
        what: str that messages call them.

    Returns:
        Integers or booleans (N,) or (N, K); strings likewise; rows (N, J) of float32 in [0, 1]
        with a column for each of J > 1 classes; `Words`; or None if no image has a label.

    Raises:
        DataError: If the values are no labels.
    """
    if labels is None:
        return None
    array = labels.numbers if isinstance(labels, Words) else _as_array(labels)
    is_right = array.ndim in (1, 2) and array.dtype.kind in "iubfUSO" and all(array.shape[1:])
    if not is_right or n not in (None, len(array)):
        shape = "" if n is None else f" of shape ({n},)"
        dtype = "" if array.dtype == object else f" and dtype {array.dtype}"
        raise DataError(
            f"{what} {_RULE.replace(', one', f'{shape}, one', 1)}. "
            f"Received: shape {array.shape}{dtype}."
        )
    if isinstance(labels, Words):
        return labels
    # Keras' data sets store labels as (N, 1).
    array = array[:, 0] if array.shape[1:] == (1,) else array
    is_missing = _are_missing(array)
    lacking = np.count_nonzero(is_missing.any(axis=1) if array.ndim == 2 else is_missing)
    if is_missing.any() and is_missing.all():
        return None
    if lacking:
        raise DataError(
            f"{what} must give every image a label. Received: none for {lacking} of {len(array)} "
            "images. Leave these images out."
        )
    if array.dtype == object:
        array = _plain(array, what)
    if array.dtype.kind == "S":
        # Bytes, as older programs write them.
        return np.char.decode(array, "utf-8", "backslashreplace")
    return array if array.dtype.kind == "U" else _numbers(array, what)


def _as_array(labels):
    """Return labels of any container as an array; lists as an array of objects."""
    if hasattr(labels, "row_splits"):
        # A ragged tensor.
        labels = labels.to_list()
    elif hasattr(labels, "toarray"):
        # A sparse matrix.
        labels = labels.toarray()
    if np.ma.is_masked(labels):
        labels = np.where(np.ma.getmaskarray(labels), None, labels.data.astype(object))
    if not isinstance(labels, (list, tuple)):
        array = np.asarray(labels)
        return array.astype("float32") if array.dtype.name == "bfloat16" else array
    labels = [each.numpy() if hasattr(each, "numpy") else each for each in labels]
    try:
        # Otherwise numbers beside strings would become strings.
        return np.array(labels, dtype=object)
    except ValueError:
        found = np.empty(len(labels), object)
        found[:] = [list(each) for each in labels]
        return found


def _are_missing(array):
    """Return which elements are None, NaN or an empty string."""
    if array.dtype.kind == "f":
        return np.isnan(array)
    if array.dtype.kind in "US":
        return array == array.dtype.type()
    if array.dtype != object:
        return np.zeros(array.shape, bool)
    found = [
        each is None
        or type(each).__name__ in ("NAType", "NaTType")
        or (isinstance(each, float) and math.isnan(each))
        or (isinstance(each, (str, bytes)) and not each)
        for each in array.ravel()
    ]
    return np.array(found, bool).reshape(array.shape)


def _plain(array, what):
    """Return an array of objects as numbers or strings."""
    flat = array.ravel().tolist()
    if not flat:
        return array.astype(np.int64)
    kinds = collections.Counter(map(_kind, flat))
    if set(kinds) <= {"word"}:
        return _strings(flat, as_array=True).reshape(array.shape)
    if set(kinds) <= {"truth", "number"}:
        found = np.array(flat)
        if found.dtype.kind in "biuf":
            return found.reshape(array.shape)
    if set(kinds) == {"several"} and array.ndim == 1:
        sizes = [len(each) for each in flat]
        raise DataError(
            f"{what} must give every image equally many labels. "
            f"Received: {min(sizes)} to {max(sizes)} labels an image."
        )
    counts = collections.Counter(type(each).__name__ for each in flat)
    received = ", ".join(f"{count} of type {name}" for name, count in counts.most_common(4))
    raise DataError(f"{what} {_RULE}, all integers or all strings. Received: {received}.")


def _kind(value):
    """Return the kind of one label."""
    if isinstance(value, (bool, np.bool_)):
        return "truth"
    if isinstance(value, (str, bytes)):
        return "word"
    if isinstance(value, numbers.Real):
        return "number"
    return "several" if isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value) else "other"


def _strings(values, as_array=False):
    """Return strings or bytes as a tuple of strings, or as an array."""
    texts = tuple(
        each.decode("utf-8", "backslashreplace") if isinstance(each, bytes) else str(each)
        for each in np.asarray(values, dtype=object).ravel().tolist()
    )
    return np.array(texts, dtype=str) if as_array else texts


def _numbers(array, what):
    """Return numbers as integers, or as rows with a column for each class."""
    if not array.size:
        return array.astype("float32" if array.ndim == 2 else np.int64)
    low, high = array.min(), array.max()
    # Larger floats have lost digits.
    is_whole = array.dtype.kind != "f" or (max(-low, high) <= 2**53 and not (array % 1).any())
    if array.ndim == 2 and low >= 0 and high <= 1:
        return array.astype("float32")
    if not is_whole and array.ndim == 2:
        raise DataError(
            f"rows of {what} must hold numbers from 0 to 1, one for each class. "
            f"Received: values from {low:g} to {high:g}."
        )
    if not is_whole:
        raise DataError(f"{what} {_RULE}. Received: fractions from {low:g} to {high:g}.")
    if array.dtype.kind == "b":
        return array
    is_large = high > np.iinfo(np.int64).max
    return array.astype(np.uint64 if is_large and low >= 0 else np.int64)


def _is_words(labels):
    return isinstance(labels, Words) or labels.dtype.kind == "U"


def _shape(labels):
    """Return the shape of one image's labels."""
    return () if isinstance(labels, Words) else labels.shape[1:]


def _check_alike(read, parts):
    """Raise `DataError` unless all parts have labels of one kind, equally many an image."""
    first, *others = read
    for other in others:
        pair = [parts[first].what, parts[other].what]
        if _is_words(read[first]) != _is_words(read[other]):
            kinds = ["strings" if _is_words(read[name]) else "integers" for name in (first, other)]
            raise DataError(
                "labels must be all integers or all strings. "
                f"Received: {kinds[0]} as {pair[0]}, {kinds[1]} as {pair[1]}."
            )
        if _shape(read[first]) != _shape(read[other]):
            each = [math.prod(_shape(read[name])) for name in (first, other)]
            raise DataError(
                "labels must give every image equally many labels. "
                f"Received: {each[0]} an image as {pair[0]}, {each[1]} as {pair[1]}."
            )


def _of_columns(rows, what):
    """Return the numbers (N,) or (N, K) of the classes whose columns are one."""
    if not np.isin(rows, (0, 1)).all():
        raise DataError(
            f"{what} must be integers or strings, or zeros and ones with one column for each "
            "class. Received: fractions. Train on the largest, `y.argmax(axis=1)`, or compile the "
            "model: `compile` and `fit` of Keras take fractions."
        )
    counts = np.unique(rows.sum(axis=1).astype(int))
    if len(counts) > 1 or counts[0] == 0:
        raise DataError(
            f"{what} with a column for each class must give every image equally many labels, at "
            f"least one. Received: {counts.min()} to {counts.max()} labels an image."
        )
    found = np.nonzero(rows)[1].reshape(len(rows), -1)
    return found[:, 0] if counts[0] == 1 else found


def _number_words(read, class_names):
    """Return the numbers of words by part, and the words in the order of their numbers."""
    pairs = {}
    for name, labels in read.items():
        if not isinstance(labels, Words):
            words, inverse = np.unique(labels, return_inverse=True)
            labels = Words(inverse.reshape(labels.shape), tuple(words.tolist()))
        pairs[name] = labels
    every = set().union(*(labels.words for labels in pairs.values()))
    texts = class_names or tuple(sorted(every))
    if unknown := sorted(every - set(texts)):
        raise DataError(
            f"`class_names` must hold every label. Received: no {listing(unknown, 5)} among "
            f"{listing(texts, 5)}."
        )
    place = {text: number for number, text in enumerate(texts)}
    found = {}
    for name, labels in pairs.items():
        table = np.array([place[word] for word in labels.words], np.int64)
        found[name] = table[labels.numbers]
    return found, texts


def _check_range(read, parts):
    """Raise `DataError` for negative integers."""
    for name, labels in read.items():
        if labels.dtype.kind == "i" and labels.min(initial=0) < 0:
            raise DataError(
                f"{parts[name].what} must number classes from 0 on. Received: labels from "
                f"{labels.min()} to {labels.max()}. If {labels.min()} stands for no label, leave "
                "these images out."
            )


def _named(read, parts, names):
    """Return integers as they are, after a check that each has a name if there are names."""
    _check_range(read, parts)
    largest = max((int(labels.max(initial=0)) for labels in read.values()), default=0)
    if largest > np.iinfo(np.int64).max:
        raise DataError(f"labels must be below 2**63. Received: labels up to {largest}.")
    if names is not None and largest >= len(names):
        raise DataError(
            f"`class_names` must hold a string for each label from 0 to {largest}. "
            f"Received: {len(names)} names."
        )
    return {name: labels.astype(np.int64) for name, labels in read.items()}


def _number_values(read, parts, columns):
    """Return the numbers by part of the integers that occur, and the integers as class names."""
    _check_range(read, parts)
    if any(labels.dtype.kind == "u" for labels in read.values()):
        # Beside int64 they would become floats.
        read = {name: labels.astype(np.uint64) for name, labels in read.items()}
    each = [np.unique(labels) for labels in read.values()]
    # A column without a one is a class, too.
    values = np.unique(np.concatenate([*each, np.arange(columns)] if columns else each))
    found = {name: np.searchsorted(values, labels) for name, labels in read.items()}
    found = {name: labels.astype(np.int64) for name, labels in found.items()}
    return found, tuple(map(str, values.tolist()))


def class_rows(y: Any, classes: int, n: int | None = None, is_batch: bool = False) -> np.ndarray:
    """Return float32 rows (N, J) for a compiled classifier with J classes.

    Args:
        y: Integers (N,) or (N, 1) from 0 to J - 1, or rows (N, J) of numbers in [0, 1]: zeros and
            ones, smoothed or mixed. With J = 1, zeros and ones (N,).
        classes: int, J.
        n: int, number of images, or None: any number.
        is_batch: bool, whether these are the labels of one batch, in which no image may have a
            class.

    Raises:
        DataError: If these are no labels of J classes.
    """
    labels, most = read_labels(y, n=n), max(classes, 2) - 1
    rule = f"`y` must be integers (batch,), or zeros and ones (batch, {classes})"
    if labels is None:
        raise DataError(f"{rule}. Received: no labels.")
    if labels.dtype.kind == "U":
        raise DataError(f"{rule}: a compiled model has no class names. Received: strings.")
    if labels.ndim == 2:
        if labels.shape[1] != classes:
            raise DataError(f"{rule}. Received: shape {labels.shape}.")
        if labels.dtype.kind != "f":
            low, high = labels.min(), labels.max()
            raise DataError(f"{rule}. Received: rows with values from {low} to {high}.")
        if not (is_batch or labels.any() or not labels.size):
            raise DataError(f"{rule}. Received: zeros alone, so that no image has a class.")
        return labels
    if labels.size and not 0 <= labels.min() <= labels.max() <= most:
        raise DataError(
            f"`y` must hold integers from 0 to {most}, for {classes} classes. "
            f"Received: values from {labels.min()} to {labels.max()}."
        )
    if classes == 1:
        # One class is there or not.
        return labels[:, None].astype("float32")
    rows = np.zeros((len(labels), classes), "float32")
    rows[np.arange(len(labels)), labels.astype(np.int64)] = 1
    return rows


def check_classifier_labels(data: Any, classes: int) -> None:
    """Raise an error unless a classifier of so many classes can be trained on an `ImageData`."""
    for images in (data.train, data.held_out):
        if images.labels is None:
            why = f": {images.unlabelled} is in no class folder" if images.unlabelled else ""
            table = images.label_file
            why += f", and {table} has labels" if table else ""
            raise DataError(
                f"A classifier needs images with labels. Received: images without labels{why}.",
                hint=f"labels:{table}" if table else None,
            )
        low, high = images.labels.min(), images.labels.max()
        if low < 0:
            raise DataError(
                f"A classifier needs images that are all labelled. Received: a label {low}"
            )
        if high >= classes:
            raise ConfigError(
                f"`classes` must be at least {high + 1} for these labels. "
                f"Received: classes={classes}"
            )
    found = np.unique(data.train.labels)
    if len(found) < 2:
        names = data.train.class_names
        shown = repr(names[found[0]]) if names else found[0]
        raise DataError(
            "A classifier needs training images of at least two classes. "
            f"Received: {len(data.train)} images of class {shown} alone."
        )
