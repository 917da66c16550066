"""Image files of a folder, listed without keeping millions of paths in memory."""

import array
import functools
import hashlib
import itertools
import os
import stat
import warnings
from pathlib import Path

import numpy as np

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.mapping import RowView
from keras_capsule_poe.data.ordering import epoch_order, hold_out
from keras_capsule_poe.data.pixels import check_room, fit_image, floats_to_bytes
from keras_capsule_poe.data.store import Source, joined, open_store
from keras_capsule_poe.errors import DataError

EXTENSIONS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")


class Listing:
    """Image files below a folder in sorted order, without hidden ones."""

    def __init__(self, root):
        self.root = os.fspath(root)
        numbers, classes, is_flat = {}, array.array("q"), False
        for path in self.paths():
            top, inside, _ = path[len(self.root) :].lstrip(os.sep).partition(os.sep)
            is_flat = is_flat or not inside
            classes.append(numbers.setdefault(top, len(numbers)) if inside else 0)
        self.classes = np.frombuffer(classes, np.int64) if classes else np.empty(0, np.int64)
        # First-level sub-folders in sorted order; None if a file lies outside them.
        self.class_names = None if is_flat else tuple(numbers)

    def __len__(self):
        return len(self.classes)

    def paths(self, first=0):
        """Iterate over the paths (str) from file number `first` on."""
        return itertools.islice(_walk(self.root), first, None)

    @functools.cached_property
    def fingerprint(self):
        """Hash of the name, size and modification time of each file."""
        digest = hashlib.sha256()
        for path in self.paths():
            try:
                status = os.stat(path)
            except OSError as error:
                raise _unreadable(path, error) from error
            digest.update(os.fsencode(path[len(self.root) :]) + b"\0")
            digest.update(f"{status.st_size} {status.st_mtime_ns}\0".encode())
        return digest.hexdigest()


def _walk(folder, above=()):
    """Iterate over paths of image files; follow links, except back to a folder in `above`."""
    if not above and not os.path.isdir(folder):
        return
    try:
        status = os.stat(folder)
        here = status.st_dev, status.st_ino
        if here in above:
            return
        # Names only: directory entries take ten times as much memory.
        names, folders = [], set()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    folders.add(entry.name)
                elif not entry.name.lower().endswith(EXTENSIONS):
                    continue
                names.append(entry.name)
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name in folders:
                yield from _walk(path, (*above, here))
            else:
                yield path
    except OSError as error:
        raise _unreadable(folder, error) from error


def _unreadable(path, error):
    return DataError(f"folder {path} cannot be read: {error.strerror or error}.")


class UnreadableImage(Exception):
    """Error of a file that holds no readable image; its message follows the path."""


def read_image(path):
    """Read the first image of a file, upright and on black, as uint8 (H, W, C), C 1 or 3."""
    from PIL import Image, ImageOps

    try:
        # Opening a FIFO would wait for a writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UnreadableImage("is no file")
        file = open(path, "rb")
    except OSError as error:
        raise UnreadableImage(f"cannot be read: {error.strerror or error}") from error
    with file, warnings.catch_warnings():
        # Pillow warns of odd metadata and of large images.
        warnings.simplefilter("ignore")
        try:
            with Image.open(file) as image:
                image.load()
                image = ImageOps.exif_transpose(image)
            deep = image.mode.startswith(("I", "F"))
            array = np.asarray(image) if deep else _shallow(image)
        except Image.DecompressionBombError as error:
            most = 2 * Image.MAX_IMAGE_PIXELS
            raise UnreadableImage(f"is too large, it holds more than {most:,} pixels") from error
        # Damaged files raise OSError, SyntaxError, struct.error and more.
        except Exception as error:
            raise UnreadableImage("is broken or no image") from error
    return _deep(path, array) if deep else array


def _shallow(image):
    """Convert an image of at most 8 bits to uint8 (H, W, C)."""
    from PIL import Image

    grey = image.mode in ("1", "L", "LA", "La")
    palette = image.mode in ("P", "PA")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "black"), image)
    array = np.asarray(image.convert("RGB"))
    return array[..., :1] if grey or (palette and (array == array[..., :1]).all()) else array


def _deep(path, array):
    """Convert a grey image of more than 8 bits to uint8."""
    # Pillow itself would clip at 255.
    if array.dtype.kind != "f":
        low, high = array.min(), array.max()
        if low < 0 or high > 65535:
            raise DataError(
                f"{path} must hold integers in [0, 65535]; convert it to 8 bit. "
                f"Received: values from {low} to {high}."
            )
        array = array / 65535
    return floats_to_bytes(array, path)[..., np.newaxis]


def load_folder(folder, options):
    """Load all images below `folder` in random order, split into training and test images."""
    options.refuse("a folder of images", "column", "data_dir", "manual_dir")
    folder = Path(folder)
    tests = [folder / name for name in ("test", "validation", "val")]
    test = next((root for root in tests if root.is_dir()), tests[0])
    parts = [Listing(folder / "train"), Listing(test)]
    if all(map(len, parts)):
        # Random order, so that `limit` takes images of every class.
        orders = [epoch_order(len(part), options.seed, 0) for part in parts]
    else:
        whole = Listing(folder)
        if not len(whole):
            raise DataError(
                f"folder {folder} holds no images; give one with {', '.join(EXTENSIONS)} files."
            )
        parts = whole, whole
        orders = hold_out(len(whole), options.test_fraction, options.seed)
    read = _read if options.store is None else _stored
    (train, test), skipped = read(folder, parts, orders, options)
    of_parts = [part.class_names for part in parts]
    names = tuple(sorted({*of_parts[0], *of_parts[1]})) if None not in of_parts else None

    def image_set(images, files, part):
        labels = None
        if names:
            number = np.array([names.index(name) for name in part.class_names], np.int64)
            labels = number[part.classes[files]]
        return ImageSet(images, labels, names, str(folder))

    return ImageData(image_set(*train, parts[0]), image_set(*test, parts[1]), skipped)


def _read(folder, parts, orders, options):
    """Read each part into memory: pairs (images, file numbers), and the skipped paths."""
    reader = _Reader(options)
    found = []
    for part, order, limit in zip(parts, orders, (options.limit, None)):
        paths = list(part.paths())
        found.append(reader.read(paths, order, limit))
    return [(reader.stack(images), files) for images, files in found], tuple(reader.skipped)


def _stored(folder, parts, orders, options):
    """Read each part as `_read` does, through a store on disk."""
    parts = parts[:1] if parts[0] is parts[1] else parts
    sizes = [len(part) for part in parts]

    def read(part):
        def blocks(first):
            reader = _Reader(options)
            # A blank image fills the rows of unreadable files.
            readable = reader.images(path for each in parts for path in each.paths())
            if (blank := next(readable, None)) is None:
                raise _none_left(sum(sizes), reader.skipped[0])
            blank = np.zeros_like(blank)
            for path in part.paths(first):
                image = reader.image(path)
                broken = np.array([image is None])
                yield (blank if image is None else image)[np.newaxis], {"broken": broken}

        return blocks

    about = {
        "folder": str(folder.resolve()),
        "files": [part.fingerprint for part in parts],
        "image_size": options.image_size,
        "grey": options.grey,
        "skip_broken": options.skip_broken,
    }
    read_all = joined([(size, read(part)) for size, part in zip(sizes, parts)])
    source = Source(folder.resolve().name, about, sum(sizes), read_all)
    images, known = open_store(source, options.store, options.report)
    whole = known["broken"]
    paths = (path for part in parts for path in part.paths())
    skipped = tuple(path for path, is_broken in zip(paths, whole) if is_broken)
    found, firsts = [], (0, sizes[0] if len(parts) > 1 else 0)
    for first, order, limit in zip(firsts, orders, (options.limit, None)):
        files = order[~whole[first + order]][:limit]
        if not len(files):
            raise _none_left(len(order), skipped[0])
        found.append((RowView(images, first + files), files))
    return found, skipped


def _none_left(files, first):
    return DataError(
        f"no image is left to train or test with: all {files} files of one part "
        f"cannot be read, {first} first; repair them or give another folder."
    )


class _Reader:
    """Reader of image files that checks that all images have one size."""

    def __init__(self, options):
        self.options = options
        self.first = None
        self.grey = True
        self.skipped = []

    def image(self, path):
        """Read one image, or record a broken file in `skipped` and return `None`."""
        try:
            image = read_image(path)
        except UnreadableImage as error:
            if not self.options.skip_broken:
                raise DataError(
                    f"{path} {error}; remove or repair it.", hint="skip_broken"
                ) from error
            self.skipped.append(path)
            return None
        image = fit_image(image, self.options.image_size, self.options.grey)
        self._compare(path, image)
        return image

    def images(self, paths):
        """Iterate over the readable images of `paths`."""
        return (image for path in paths if (image := self.image(path)) is not None)

    def read(self, paths, order, limit):
        """Read at most `limit` images; return them and the numbers of their files."""
        images, files = [], []
        for number in order:
            if len(images) == limit:
                break
            image = self.image(paths[number])
            if image is None:
                continue
            if not images:
                # Two copies: the list of images, then the stacked array.
                check_room(min(len(order), limit or len(order)), image.shape, copies=2)
            images.append(image)
            files.append(number)
        if not images:
            raise _none_left(len(order), paths[order[0]])
        return images, np.array(files)

    def _compare(self, path, image):
        size = image.shape[:2]
        self.grey = self.grey and image.shape[-1] == 1
        if self.first is None:
            self.first = path, size
        elif size != self.first[1]:
            (other, (height, width)) = self.first
            raise DataError(
                "all images of a folder must have the same size, unless `image_size` is given. "
                f"Received: {other} of {height}x{width} and {path} of {size[0]}x{size[1]} pixels.",
                hint="image_size",
            )

    def stack(self, images):
        """Stack images to (N, H, W, C), grey only if every image read was grey."""
        channels = 1 if self.grey else 3
        stacked = np.empty((len(images), *self.first[1], channels), np.uint8)
        for i, image in enumerate(images):
            stacked[i] = image
        return stacked
