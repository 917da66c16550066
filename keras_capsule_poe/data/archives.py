"""Blockwise reading of the arrays in an `.npz` archive."""

import contextlib
import math
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from keras_capsule_poe.data.groups import number_groups, split
from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.labels import Part, number_labels
from keras_capsule_poe.data.mapping import view
from keras_capsule_poe.data.pixels import check_images, check_memory, fit_images, floats_to_bytes
from keras_capsule_poe.data.store import Source, read_parts
from keras_capsule_poe.data.streams import by_class, in_blocks
from keras_capsule_poe.errors import DataError, first_line, listing

# Size of a block. Two blocks are in memory while the next one is read.
_BYTES = 2**22


class Member:
    """Array in an `.npz` archive that is read in blocks of rows."""

    def __init__(self, path, name):
        self.path, self.name = path, name
        with self._open() as (_, shape, dtype, by_columns):
            self.shape, self.dtype, self.by_columns = shape, dtype, by_columns
        self.row_bytes = math.prod(shape[1:]) * dtype.itemsize

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
        at_once = max(1, _BYTES // max(self.row_bytes, 1))
        if self.by_columns:
            # In Fortran order, rows are not contiguous.
            whole = self.whole()
            for start in range(first, len(whole), at_once):
                yield whole[start : start + at_once]
            return
        with self._open() as (file, shape, dtype, _):
            file.seek(first * self.row_bytes, 1)
            for start in range(first, shape[0], at_once):
                rows = min(at_once, shape[0] - start)
                read = file.read(rows * self.row_bytes)
                yield np.frombuffer(read, dtype).reshape(rows, *shape[1:])

    def whole(self):
        """Return the array in memory."""
        size = self.row_bytes * math.prod(self.shape[:1])
        check_memory(f"the array {self.name} of {self.path}", size, hint="store")
        with self._open() as (file, shape, dtype, by_columns):
            values = np.frombuffer(file.read(size), dtype) if size else np.empty(0, dtype)
            return values.reshape(shape, order="F" if by_columns else "C")


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


def load_npz(path, options):
    """Load `x_train` and `x_test`, or `images`, or the array `column`, with any labels."""
    options.refuse("an .npz file", "data_dir", "manual_dir", "skip_broken", *options.of_folders)
    path = Path(path)
    with reading(path), zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    if options.column is None and {"x_train", "x_test"} <= set(names):
        given = {"x_train": "y_train", "x_test": "y_test"}
        grouped = {"x_train": options.groups or "groups_train", "x_test": "groups_test"}
    else:
        images = options.column or ("x_train" if "x_train" in names else "images")
        given = {images: "y_train" if images == "x_train" else "labels"}
        grouped = {images: options.groups or "groups"}
    if not given.keys() <= set(names):
        asked = f"no array {options.column!r}" if options.column else "no array x_train or images"
        raise DataError(
            f"{path} holds {asked}; `column` must name the array of images. "
            f"Received: arrays {listing(names)}.",
            hint="column",
        )
    members = {name: Member(path, name) for name in given}
    for name, member in members.items():
        what = f"array {name!r} of {path}"
        check_images(member, what, channels=(1, 3))
        if not all(member.shape):
            raise DataError(f"{what} is empty. Received: shape {member.shape}.")
    texts = Member(path, "class_names").whole() if "class_names" in names else None
    labels = _of_images(path, members, given, names)
    numbered = number_labels(labels, texts, former=options.data_version < 3)
    groups = _groups(path, members, grouped, names, options)
    pixels = dict(zip(_PARTS, _pixels(path, members, options)))

    def image_set(part, index):
        known, extras = numbered.labels.get(part), {}
        if part in groups:
            extras["groups"] = groups[part][index]
        if known is None:
            return ImageSet(view(pixels[part], index), name=str(path), extras=extras)
        known, names = known[index], numbered.class_names
        return ImageSet(view(pixels[part], index), known, names, str(path), extras)

    drawn_by = options.drawn_by(numbered.labels.get("training"), len(pixels["training"]))
    if len(pixels) == 1:
        train, test = split(drawn_by, options.test_fraction, options.seed, groups.get("training"))
        sets = image_set("training", train[: options.limit]), image_set("training", test)
    else:
        train = _order(drawn_by, options)[: options.limit]
        sets = image_set("training", train), image_set("test", slice(None))
    return ImageData(*sets, notes=numbered.notes)


def _order(classes, options):
    """Return the order of training images whose classes (N,) are known, an index or a slice."""
    is_sorted = (np.diff(classes) >= 0).all() and 1 < len(np.unique(classes)) < len(classes)
    if is_sorted or (options.data_version > 2 and in_blocks(classes)):
        # The last images, which are held out, would be of one class.
        return by_class(classes, options.seed)
    return np.arange(len(classes))


# Names of the parts of an archive, in order.
_PARTS = ("training", "test")


def _of_images(path, members, names, known):
    """Return by part a `Part` of the array in `names` of each array of images, if it is known."""
    found = {}
    for part, (images, member) in zip(_PARTS, members.items()):
        name = names[images]
        array = Member(path, name).whole() if name in known else None
        found[part] = Part(array, member.shape[0], f"array {name!r} of {path}")
    return found


def _groups(path, members, names, known, options):
    """Return the groups of the images by part, none if the archive has no such arrays."""
    if options.groups is not None and options.groups not in known:
        raise DataError(
            f"`groups` must name an array of {path}. Received: groups={options.groups!r}; the "
            f"arrays are {listing(known)}."
        )
    found = _of_images(path, members, names, known)
    found = {part: each for part, each in found.items() if each.labels is not None}
    return number_groups(found) if found else {}


def _pixels(path, members, options):
    """Return the fitted uint8 images of each `Member`, in memory or from a store."""
    status = path.stat()
    about = {
        "file": [str(path.resolve()), status.st_size, status.st_mtime_ns],
        "arrays": list(members),
        "image_size": options.image_size,
        "grey": options.grey,
    }

    def read(part, first):
        name, member = list(members.items())[part]
        for block in member.blocks(first):
            pixels = block if block.ndim == 4 else block[..., np.newaxis]
            if pixels.dtype != np.uint8:
                pixels = floats_to_bytes(pixels, f"array {name!r} of {path}")
            yield fit_images(pixels, options.image_size, options.grey), {}

    source = Source(path.stem, about, [member.shape[0] for member in members.values()], read)
    return [images for images, _ in read_parts(source, options.store, options.report)]
