"""Blockwise reading of arrays in an `.npz` archive."""

import contextlib
import functools
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.mapping import view
from keras_capsule_poe.data.ordering import by_class, hold_out
from keras_capsule_poe.data.pixels import check_memory, fit_images, floats_to_bytes
from keras_capsule_poe.data.store import Source, joined, open_store
from keras_capsule_poe.errors import DataError, first_line, listing

# Size of a block. Two blocks are in memory while the next one is read.
_BYTES = 2**22


class Member:
    """Array in an `.npz` archive that is read in blocks of rows."""

    def __init__(self, path, name):
        self.path, self.name = path, name
        with self._open() as (_, shape, dtype, by_columns):
            self.shape, self.dtype, self.by_columns = shape, dtype, by_columns
        self.ndim, self.size = len(shape), int(np.prod(shape))

    @contextlib.contextmanager
    def _open(self):
        """Open the member's data after its header; yield file, shape, dtype and order."""
        with reading(self.path), zipfile.ZipFile(self.path) as archive:
            with archive.open(f"{self.name}.npy") as file:
                version = npy.read_magic(file)
                header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
                shape, by_columns, dtype = header[version](file)
                if dtype.hasobject:
                    raise ValueError(f"{self.name} holds objects")
                yield file, shape, dtype, by_columns

    def blocks(self, first=0):
        """Iterate over blocks (B, ...) of rows from row `first` on."""
        row = int(np.prod(self.shape[1:], dtype=int)) * self.dtype.itemsize
        at_once = max(1, _BYTES // max(row, 1))
        if self.by_columns:
            # In Fortran order, rows are not contiguous.
            size = self.size * self.dtype.itemsize
            check_memory(f"the array {self.name} of {self.path}, in Fortran order,", size)
            with reading(self.path), np.load(self.path) as archive:
                whole = archive[self.name]
                for start in range(first, len(whole), at_once):
                    yield whole[start : start + at_once]
            return
        with self._open() as (file, shape, dtype, _):
            file.seek(first * row, 1)
            for start in range(first, shape[0], at_once):
                rows = min(at_once, shape[0] - start)
                read = file.read(rows * row)
                yield np.frombuffer(read, dtype).reshape(rows, *shape[1:])


@contextlib.contextmanager
def reading(path):
    """Convert every error of a damaged archive to a `DataError`."""
    try:
        yield
    except DataError:
        raise
    # NumPy does not wrap the errors of its parsers.
    except Exception as error:
        raise DataError(
            f"{path} cannot be read as an .npz archive of plain arrays: it is damaged or of "
            f"another kind ({first_line(error)})."
        ) from error


# First bytes of an .npy file.
_ARRAY = b"\x93N"


def load_npz(path, options):
    """Load `x_train` and `x_test`, or `images`, or the array `column`, with any labels."""
    options.refuse("an .npz file", "data_dir", "manual_dir", "skip_broken")
    path = Path(path)
    of_images = ("x_train", "x_test", "images", options.column)
    with reading(path), open(path, "rb") as file:
        if file.read(2) not in (b"PK", _ARRAY):
            # NumPy would try to unpickle it.
            raise ValueError("no archive")
        file.seek(0)
        # Opened here, because NumPy does not close a damaged archive.
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("a single array; store it with numpy.savez")
        names = archive.files
        stays = of_images if options.store is not None else ()
        wanted = {*of_images, "y_train", "y_test", "labels", "class_names"}.difference(stays)
        _check_size(path, archive, wanted)
        arrays = {name: archive[name] for name in names if name in wanted}
        if odd := [name for name in arrays if not isinstance(arrays[name], np.ndarray)]:
            raise ValueError(f"{odd[0]} is no array")
        arrays |= {name: Member(path, name) for name in names if name in stays}

    def read(*of_parts):
        for name, _ in of_parts:
            _check_pixels(path, name, arrays[name])
        if options.store is not None:
            pixels = _stored(path, [(name, arrays[name]) for name, _ in of_parts], options)
        else:
            pixels = [_pixels(path, name, arrays[name]) for name, _ in of_parts]
        given = {labels: arrays[labels] for _, labels in of_parts if arrays.get(labels) is not None}
        sizes = {labels: len(rows) for rows, (_, labels) in zip(pixels, of_parts)}
        numbers, names = _labels(path, given, sizes, arrays.get("class_names"))
        found = [(rows, numbers.get(labels)) for rows, (_, labels) in zip(pixels, of_parts)]
        return found, names

    def image_set(pixels, labels, index):
        pixels = fit_images(view(pixels, index), options.image_size, options.grey)
        labels = None if labels is None else labels[index]
        return ImageSet(pixels, labels, None if labels is None else class_names, str(path))

    if options.column is None and {"x_train", "x_test"} <= arrays.keys():
        (train, test), class_names = read(("x_train", "y_train"), ("x_test", "y_test"))
        labels = options.drawn_by(train[1], len(train[0]))
        if (np.diff(labels) >= 0).all() and 1 < len(np.unique(labels)) < len(labels):
            # Sorted by class: the last images, which are held out, would be of one class.
            limited = image_set(*train, by_class(labels, options.seed)[: options.limit])
        else:
            limited = image_set(*train, slice(options.limit))
        return ImageData(limited, image_set(*test, slice(None)))

    images = options.column or ("x_train" if "x_train" in arrays else "images")
    if images not in arrays:
        asked = f"no array {options.column!r}" if options.column else "no array x_train or images"
        raise DataError(
            f"{path} holds {asked}; `column` must name the array of images. "
            f"Received: arrays {listing(names)}.",
            hint="column",
        )
    (whole,), class_names = read((images, "y_train" if images == "x_train" else "labels"))
    drawn_by = options.drawn_by(whole[1], len(whole[0]))
    train, test = hold_out(drawn_by, options.test_fraction, options.seed)
    return ImageData(image_set(*whole, train[: options.limit]), image_set(*whole, test))


def _check_size(path, archive, wanted):
    """Raise `DataError` if the unpacked arrays exceed memory, before reading them."""
    members = {info.filename.removesuffix(".npy"): info for info in archive.zip.infolist()}
    sizes = [info.file_size for name, info in members.items() if name in wanted]
    check_memory(f"the arrays of {path}", sum(sizes), hint="store")


def _stored(path, members, options):
    """Return the fitted images of each named `Member`, from a store."""
    status = path.stat()
    about = {
        "file": [str(path.resolve()), status.st_size, status.st_mtime_ns],
        "arrays": [name for name, _ in members],
        "image_size": options.image_size,
        "grey": options.grey,
    }

    def blocks(name, member, first):
        for block in member.blocks(first):
            pixels = _pixels(path, name, block)
            yield fit_images(pixels, options.image_size, options.grey), {}

    sizes = [member.shape[0] for _, member in members]
    parts = [functools.partial(blocks, *named) for named in members]
    read = joined(list(zip(sizes, parts)))
    source = Source(path.stem, about, sum(sizes), read)
    images, _ = open_store(source, options.store, options.report)
    return np.split(images, np.cumsum(sizes)[:-1])


def _check_pixels(path, name, array):
    """Raise `DataError` if an array or `Member` cannot be images."""
    what = f"array {name!r} of {path}"
    received = f"Received: shape {array.shape} and dtype {array.dtype}."
    if array.ndim not in (3, 4):
        raise DataError(f"{what} must have shape (N, H, W) or (N, H, W, C). {received}")
    if array.ndim == 4 and array.shape[-1] not in (1, 3):
        raise DataError(
            f"{what} must have 1 or 3 channels, in the last dimension: (N, H, W, C). {received}"
        )
    if not array.size:
        raise DataError(f"{what} is empty. {received}")
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise DataError(f"{what} must be uint8, or float with pixels in [0, 1]. {received}")


def _pixels(path, name, array):
    """Convert `array` to uint8 (N, H, W, C)."""
    if array.ndim == 3:
        array = array[..., np.newaxis]
    if array.dtype == np.uint8:
        return array
    return floats_to_bytes(array, f"array {name!r} of {path}")


def _labels(path, given, sizes, class_names):
    """Return int64 labels by name, (N,) or (N, K), and the class names or None.

    Args:
        path: path of the archive, for errors.
        given: dict of the arrays of labels.
        sizes: dict of the number of images that each array labels.
        class_names: array of str, names of integer labels, or None.
    """
    for name, array in given.items():
        if (
            array.ndim not in (1, 2)
            or len(array) != sizes[name]
            or array.dtype.kind not in "iubfUS"
        ):
            raise DataError(
                f"array {name!r} of {path} must be integers or strings of shape "
                f"({sizes[name]},), one label an image, or have a row for each image. "
                f"Received: shape {array.shape} and dtype {array.dtype}."
            )
    # Keras' data sets store labels as (N, 1).
    given = {
        name: array[:, 0] if array.shape[1:] == (1,) else array for name, array in given.items()
    }
    kinds = {array.dtype.kind in "US" for array in given.values()}
    if kinds == {True}:
        names = np.unique(np.concatenate([array.ravel() for array in given.values()]))
        numbers = {name: np.searchsorted(names, array) for name, array in given.items()}
        # Bytes, as older programs write them.
        texts = [name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist()]
        return {name: array.astype(np.int64) for name, array in numbers.items()}, tuple(texts)
    found = {name: _numbers(path, name, array) for name, array in given.items()}
    if class_names is None or not found:
        return found, None
    texts = tuple(map(str, class_names.ravel().tolist()))
    largest = max(array.max() for array in found.values())
    if class_names.dtype.kind != "U" or largest >= len(texts):
        raise DataError(
            f"array 'class_names' of {path} must hold a string for each label from 0 to {largest}. "
            f"Received: {len(texts)} values of dtype {class_names.dtype}."
        )
    return found, texts


def _numbers(path, name, array):
    """Return int64 labels (N,), or (N, K) for K labels an image, of an array of numbers."""
    what = f"array {name!r} of {path}"
    if array.ndim == 2 and np.isin(array, (0, 1)).all():
        counts = np.unique(array.sum(axis=1).astype(int))
        if len(counts) > 1 or counts[0] == 0:
            raise DataError(
                f"{what} has a column for each class, and must give every image equally many "
                f"labels, at least one. Received: {counts.min()} to {counts.max()} labels an image."
            )
        found = np.nonzero(array)[1].reshape(len(array), -1)
        return found[:, 0] if counts[0] == 1 else found
    if array.dtype.kind not in "iu":
        raise DataError(
            f"{what} must be integers or strings, or zeros and ones with one column for each "
            f"class. Received: shape {array.shape} and dtype {array.dtype}."
        )
    if array.min() < 0 or array.max() > np.iinfo(np.int64).max:
        raise DataError(
            f"{what} must number classes from 0 on. "
            f"Received: labels from {array.min()} to {array.max()}."
        )
    return array.astype(np.int64)
