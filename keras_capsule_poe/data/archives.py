"""Arrays in files, read in blocks of rows: `.npz` archives, `.npy` files and idx files."""

import contextlib
import dataclasses
import functools
import gzip
import math
import os
import zipfile
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from keras_capsule_poe.data.array_names import choose, is_array, is_npy, place, stem
from keras_capsule_poe.data.groups import number_groups, split
from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.labels import Part, number_labels
from keras_capsule_poe.data.mapping import view
from keras_capsule_poe.data.pixels import check_images, check_memory, fit_images, floats_to_bytes
from keras_capsule_poe.data.reading import CALLED
from keras_capsule_poe.data.store import Source, read_parts
from keras_capsule_poe.data.streams import by_class, in_blocks
from keras_capsule_poe.data.trees import Folder
from keras_capsule_poe.errors import DataError, listing, reading

# Size of a block. Two blocks are in memory while the next one is read.
_BYTES = 2**22
# Types of idx files by their third byte.
_IDX = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NPZ = "an .npz archive of plain arrays"


class Member:
    """Array that is read in blocks of rows.

    Args:
        path: path (str) of the file that holds it.
        name: str, the name of the array.
        opened: context manager that opens the array after its header: file, shape, dtype, and
            whether columns come first.
    """

    def __init__(self, path, name, opened):
        self.path, self.name, self._opened = path, name, opened
        with self._open() as (_, shape, dtype, by_columns):
            self.shape, self.dtype, self.by_columns = shape, dtype, by_columns
        self.row_bytes = math.prod(shape[1:]) * dtype.itemsize
        # Name of the array in messages.
        self.text = f"array {name!r} of {path}"

    @contextlib.contextmanager
    def _open(self):
        with _reading(self.path), self._opened() as opened:
            if opened[2].hasobject:
                raise ValueError(f"{self.name} holds objects")
            yield opened

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
                read = _read(file, rows * self.row_bytes)
                yield np.frombuffer(read, dtype).reshape(rows, *shape[1:])

    def whole(self):
        """Return the array in memory."""
        size = self.row_bytes * math.prod(self.shape[:1])
        check_memory(f"the array {self.name} of {self.path}", size, hint="store")
        with self._open() as (file, shape, dtype, by_columns):
            values = np.frombuffer(_read(file, size), dtype) if size else np.empty(0, dtype)
            return values.reshape(shape, order="F" if by_columns else "C")


def _read(file, size):
    """Return the next bytes of a file; raise ValueError if there are fewer."""
    found = file.read(size)
    if len(found) < size:
        raise ValueError("it ends before its last row")
    return found


def _reading(path):
    """Return the context `reading` of a file of arrays."""
    kind = _NPZ if path.lower().endswith(".npz") else "an array"
    return reading(f"{path} cannot be read as {kind}: it is damaged or of another kind")


@contextlib.contextmanager
def _open_npz(path, name):
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        yield file, *_npy_header(file)


@contextlib.contextmanager
def _open_array(tree, path):
    """Open an `.npy` or an idx file, which may be compressed."""
    with tree.open(path) as raw:
        file = gzip.GzipFile(fileobj=raw) if path.lower().endswith(".gz") else raw
        yield file, *(_npy_header(file) if is_npy(path) else _idx_header(file))


def _npy_header(file):
    version = npy.read_magic(file)
    header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
    shape, by_columns, dtype = header(file)
    return shape, dtype, by_columns


def _idx_header(file):
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _IDX or not start[3]:
        raise ValueError("it does not begin as an idx file")
    shape = np.frombuffer(file.read(4 * start[3]), ">u4")
    if len(shape) < start[3]:
        raise ValueError("it ends in its header")
    return tuple(map(int, shape)), np.dtype(_IDX[start[2]]), False


class Arrays:
    """The arrays of one data set: those of an `.npz` file, or of several files.

    Args:
        path: path (str) of the `.npz` file, or of the folder or file that was given.
        kind: str, what messages call it.
        opened: dict from the name of each array to its path and its `opened`, see `Member`.
        stamp: values that change with the files, for the fingerprint of a store.
        is_prefixed: bool, whether names may begin with other words, as names of files may.
    """

    def __init__(self, path, kind, opened, stamp, is_prefixed=False):
        self.path, self.kind, self.stamp, self.is_prefixed = path, kind, stamp, is_prefixed
        self.names, self._opened = list(opened), opened

    def __getitem__(self, name):
        path, opened = self._opened[name]
        return Member(path, name, opened)


def load_npz(path, options):
    """Load the arrays of an `.npz` file, by their usual names or those that the options give."""
    path = os.fspath(path)
    with _reading(path), zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    status = os.stat(path)
    stamp = [os.path.realpath(path), status.st_size, status.st_mtime_ns]
    opened = {name: (path, functools.partial(_open_npz, path, name)) for name in names}
    return _load(Arrays(path, "an .npz file", opened, stamp), options)


def load_arrays(tree, folder, names, options, path=None):
    """Load `.npy` and idx files of a folder as the arrays of one archive.

    Args:
        tree: `Folder` or `Archive`.
        folder: path (str) of the folder in it.
        names: list of the names of the files.
        options: `Options`.
        path: path (str) that the user gave. None: the folder.
    """
    opened = {}
    # A file that is not compressed comes first.
    for name in sorted(names, key=lambda name: name.lower().endswith(".gz"), reverse=True):
        place = os.path.join(folder, name)
        opened[stem(name)] = place, functools.partial(_open_array, tree, place)
    stamp = [[tree.real(place), tree.stamp(place)] for place, _ in opened.values()]
    return _load(Arrays(path or folder, "files of arrays", opened, stamp, True), options)


def load_array(path, options):
    """Load an `.npy` or an idx file, and the files of its folder whose names go with it.

    `train-images-idx3-ubyte` has labels in `train-labels-idx1-ubyte`, and test images in
    `t10k-images-idx3-ubyte`.
    """
    folder, name = os.path.split(os.fspath(path))
    own, names = place(stem(name), is_prefixed=True), [name]
    is_first = own is not None and own[1:] in (("images", ""), ("images", "train"))
    for other in sorted(os.listdir(folder or ".")) if own else ():
        found = place(stem(other), is_prefixed=True) if is_array(other) else None
        is_beside = found and found[0] == own[0] and found[1:] != own[1:]
        # Test images are no training images.
        if is_beside and (is_first or found[2] == own[2]) and is_npy(other) == is_npy(name):
            names.append(other)
    if not is_first:
        options = dataclasses.replace(options, column=options.column or stem(name))
    tree = Folder(options.data_version)
    return load_arrays(tree, folder or os.curdir, names, options, os.fspath(path))


class _Chosen(NamedTuple):
    """Images, labels and groups of the parts, by split, and what is said of them."""

    images: dict[str, Member]
    numbered: Any
    groups: dict[str, np.ndarray]
    notes: list[str]


def _load(arrays, options):
    """Load images, labels and groups of `Arrays`."""
    options.refuse(arrays.kind, "data_dir", "manual_dir", "skip_broken", *options.of_folders)
    chosen = _choose(arrays, options)
    numbered, groups = chosen.numbered, chosen.groups
    pixels = dict(zip(chosen.images, _pixels(arrays, chosen.images, options)))

    def image_set(part, index):
        known = numbered.labels.get(CALLED[part])
        labelled = {} if known is None else {"labels": known[index]}
        names = None if known is None else numbered.class_names
        extras = {"groups": groups[CALLED[part]][index]} if groups else {}
        images = view(pixels[part], index)
        return ImageSet(images, class_names=names, name=arrays.path, extras=extras, **labelled)

    drawn_by = options.drawn_by(numbered.labels.get("training"), len(pixels["train"]))
    notes = (*chosen.notes, *numbered.notes)
    if "test" not in pixels:
        own = groups.get("training")
        train, test = split(drawn_by, options.test_fraction, options.seed, own)
        sets = image_set("train", train[: options.limit]), image_set("train", test)
    else:
        train = _order(drawn_by, options)
        sets = image_set("train", train[: options.limit]), image_set("test", slice(None))
    held_out = image_set("validation", slice(None)) if "validation" in pixels else None
    return ImageData(*sets, held_out=held_out, notes=notes)


def _choose(arrays, options):
    """Return what is read of `Arrays`."""
    names, unused = choose(arrays, options)
    images = {part: arrays[found["images"]] for part, found in names.items()}
    for member in images.values():
        check_images(member, member.text, channels=(1, 3))
        if not all(member.shape):
            raise DataError(f"{member.text} is empty. Received: shape {member.shape}.")
    of_role = {role: {} for role in ("labels", "groups")}
    for role, found in of_role.items():
        for part, member in images.items():
            name = names[part].get(role)
            values = None if name is None else arrays[name].whole()
            text = f"labels of {member.text}" if name is None else arrays[name].text
            found[CALLED[part]] = Part(values, member.shape[0], text)
    is_former = options.data_version < 3
    of_classes = ("class_names",) if is_former else ("class_names", "label_names", "target_names")
    texts = next((arrays[name].whole() for name in of_classes if name in arrays.names), None)
    numbered = number_labels(of_role["labels"], texts, former=is_former)
    given = {part: each for part, each in of_role["groups"].items() if each.labels is not None}
    groups = number_groups(given) if given else {}
    unused = [name for name in unused if name not in of_classes]
    notes = [f"Left out: arrays {listing(unused)} of {arrays.path}."] if unused else []
    if any(map(_is_lying, images.values())):
        notes.append(
            "Files of EMNIST hold images with rows and columns exchanged: they are turned."
        )
    return _Chosen(images, numbered, groups, notes)


def _order(classes, options):
    """Return the order of training images whose classes (N,) are known, an index or a slice."""
    is_sorted = (np.diff(classes) >= 0).all() and 1 < len(np.unique(classes)) < len(classes)
    if is_sorted or (options.data_version > 2 and in_blocks(classes)):
        # The last images, which are held out, would be of one class.
        return by_class(classes, options.seed)
    return np.arange(len(classes))


def _is_lying(member):
    """Return whether rows and columns of images are exchanged, as in the idx files of EMNIST."""
    name = os.path.basename(member.path).lower()
    return name.startswith("emnist") and is_array(name) and not is_npy(name)


def _pixels(arrays, members, options):
    """Return the fitted uint8 images of each `Member`, in memory or from a store."""
    about = {
        "file": arrays.stamp,
        "arrays": [member.name for member in members.values()],
        "image_size": options.image_size,
        "grey": options.grey,
    }

    def read(part, first):
        member = list(members.values())[part]
        for block in member.blocks(first):
            pixels = block if block.ndim == 4 else block[..., np.newaxis]
            if _is_lying(member):
                pixels = pixels.swapaxes(1, 2)
            if pixels.dtype != np.uint8:
                pixels = floats_to_bytes(pixels, member.text)
            yield fit_images(pixels, options.image_size, options.grey), {}

    sizes = [member.shape[0] for member in members.values()]
    source = Source(stem(os.path.basename(arrays.path)), about, sizes, read)
    return [images for images, _ in read_parts(source, options.store, options.report)]
