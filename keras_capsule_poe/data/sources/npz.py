"""Blockwise reading of arrays in an `.npz` archive."""

import contextlib
import functools
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.mapping import view
from keras_capsule_poe.data.ordering import hold_out
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
        wanted = {*of_images, "y_train", "y_test", "labels"}.difference(stays)
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
        return [
            (rows, _labels(path, labels, arrays.get(labels), len(rows)))
            for rows, (_, labels) in zip(pixels, of_parts)
        ]

    def image_set(pixels, labels, index):
        pixels = fit_images(view(pixels, index), options.image_size, options.grey)
        return ImageSet(pixels, None if labels is None else labels[index], name=str(path))

    if options.column is None and {"x_train", "x_test"} <= arrays.keys():
        train, test = read(("x_train", "y_train"), ("x_test", "y_test"))
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
    (whole,) = read((images, "y_train" if images == "x_train" else "labels"))
    train, test = hold_out(len(whole[0]), options.test_fraction, options.seed)
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


def _labels(path, name, array, n):
    """Convert `array` to int64 (N,); return `None` for `None`."""
    if array is None:
        return None
    # Keras' data sets store labels as (N, 1).
    if array.shape not in ((n,), (n, 1)) or array.dtype.kind not in "iu":
        raise DataError(
            f"array {name!r} of {path} must be integers of shape ({n},), one label an image. "
            f"Received: shape {array.shape} and dtype {array.dtype}."
        )
    if array.min() < 0 or array.max() > np.iinfo(np.int64).max:
        raise DataError(
            f"array {name!r} of {path} must number classes from 0 on. "
            f"Received: labels from {array.min()} to {array.max()}."
        )
    return array.reshape(n).astype(np.int64)
