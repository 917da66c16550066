"""Image files of a folder, listed without keeping millions of paths in memory."""

from pathlib import Path

import numpy as np

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.mapping import RowView, spread
from keras_capsule_poe.data.ordering import by_class, hold_out
from keras_capsule_poe.data.pixels import check_room, fit_image
from keras_capsule_poe.data.sources.folder_parts import Listing, find_splits, notes_on
from keras_capsule_poe.data.sources.image_files import (
    SURVEYED,
    Conversion,
    UnreadableImage,
    read_image,
    survey,
)
from keras_capsule_poe.data.store import Source, joined, open_store
from keras_capsule_poe.errors import DataError


def load_folder(folder, options):
    """Load all images below `folder`, split into training, test and maybe held-out images."""
    options.refuse("a folder of images", "column", "data_dir", "manual_dir")
    folder = Path(folder)
    parts, notes = _parts(folder, options)
    classes = {split: _labels(part, options) for split, part in parts.items()}
    orders = [by_class(labels, options.seed) for labels in classes.values()]
    if "test" not in parts:
        train = parts["train"]
        first, test = hold_out(classes["train"], options.test_fraction, options.seed)
        # In the same order as their sets below.
        parts = {"train": train, "test": train, **parts}
        orders = [first, test, *orders[1:]]
    conversion, more = _conversion(parts.values(), options)
    read = _read if options.store is None else _stored
    found, skipped = read(folder, list(parts.values()), orders, options, conversion)
    names, about = _names(parts)
    notes = (*notes, *notes_on(dict.fromkeys(parts.values())), *about, *more)
    loose = next((part.loose for part in parts.values() if part.loose), None)

    def image_set(images, files, part):
        labels = None
        if names:
            number = np.array([names.index(name) for name in part.class_names], np.int64)
            labels = number[part.classes[files]]
        return ImageSet(images, labels, names, str(folder), unlabelled=loose)

    sets = {name: image_set(*each, parts[name]) for name, each in zip(parts, found)}
    held_out = sets.get("validation")
    return ImageData(sets["train"], sets["test"], skipped, held_out, notes)


def _parts(folder, options):
    """Return the `Listing` of each split, and notes on the choice."""
    if options.train_dir is not None:
        roots, notes = {"train": Path(options.train_dir)}, ()
        if options.test_dir is not None:
            roots["test"] = Path(options.test_dir)
    elif options.test_dir is not None:
        raise DataError(
            "`test_dir` needs `train_dir`, too. "
            f"Received: test_dir={str(options.test_dir)!r} and train_dir=None."
        )
    elif options.data_version == 1:
        tests = [folder / name for name in ("test", "validation", "val")]
        test = next((root for root in tests if root.is_dir()), tests[0])
        roots, notes = {"train": folder / "train", "test": test}, ()
        if not all(len(Listing(root)) for root in roots.values()):
            roots = {"train": folder}
    else:
        roots, notes = find_splits(folder)
        if "validation" in roots and "test" not in roots:
            roots["test"] = roots.pop("validation")
    parts = {split: Listing(root) for split, root in roots.items()}
    for split, part in list(parts.items()):
        if split == "train" and not len(part):
            kinds = ", ".join(notes_on([part])) or "It has no files that Pillow reads."
            raise DataError(f"folder {part.root} holds no images. {kinds}")
        is_unlabelled = parts["train"].class_names and not part.class_names
        if not len(part):
            notes += (f"{part.root} holds no images.",)
        elif is_unlabelled and options.data_version > 1:
            notes += (
                f"Left out: the images of {part.root}, as {part.loose} has no class; those of "
                f"{parts['train'].root} have.",
            )
        else:
            continue
        del parts[split]
    return parts, notes


def _labels(part, options):
    """Return the class number of each file by which parts are drawn; zeros if by none."""
    has_classes = part.class_names and options.data_version > 1
    return part.classes if has_classes else np.zeros(len(part), np.int64)


def _names(parts):
    """Return the class names of all parts, or None, and notes on classes that are missing."""
    of_parts = {split: part.class_names for split, part in parts.items()}
    if None in of_parts.values():
        mixed = [part for part in parts.values() if part.loose and part.has_folders]
        return None, tuple(
            f"The images have no labels: {part.loose} lies outside the class folders."
            for part in dict.fromkeys(mixed)
        )
    names = tuple(sorted(set().union(*of_parts.values())))
    notes = []
    for split, known in of_parts.items():
        if missing := [name for name in names if name not in known]:
            shown = ", ".join(missing[:5]) + (" and more" if len(missing) > 5 else "")
            notes.append(f"No {split} images of: {shown}.")
    return names, tuple(notes)


def _conversion(parts, options):
    """Return the `Conversion` of all images, and notes on it."""
    if options.data_version == 1:
        return Conversion(options.background or "black", options.max_value or 65535), ()
    sample = []
    for part in dict.fromkeys(parts):
        wanted = set(spread(len(part), SURVEYED).tolist())
        sample += [path for number, path in enumerate(part.paths()) if number in wanted]
    return survey(sample, options.background, options.max_value)


def _read(folder, parts, orders, options, conversion):
    """Read each part into memory: pairs (images, file numbers), and the skipped paths."""
    reader = _Reader(options, conversion)
    found = []
    limits = (options.limit, *(None for _ in parts[1:]))
    for part, order, limit in zip(parts, orders, limits):
        paths = list(part.paths())
        found.append(reader.read(paths, order, limit))
    return [(reader.stack(images), files) for images, files in found], tuple(reader.skipped)


def _stored(folder, parts, orders, options, conversion):
    """Read each part as `_read` does, through a store on disk."""
    each = list(dict.fromkeys(parts))
    sizes = [len(part) for part in each]

    def read(part):
        def blocks(first):
            reader = _Reader(options, conversion)
            # A blank image fills the rows of unreadable files.
            readable = reader.images(path for each_part in each for path in each_part.paths())
            if (blank := next(readable, None)) is None:
                raise _none_left(sum(sizes), reader.skipped[0])
            blank = np.zeros_like(blank)
            for path in part.paths(first):
                image = reader.image(path)
                known = {
                    "broken": np.array([image is None]),
                    "rgb": np.array([image is not None and image.shape[-1] == 3]),
                }
                yield (blank if image is None else image)[np.newaxis], known

        return blocks

    about = {
        "folder": str(folder.resolve()),
        "parts": [str(Path(part.root).resolve()) for part in each],
        "files": [part.fingerprint for part in each],
        "image_size": options.image_size,
        "grey": options.grey,
        "skip_broken": options.skip_broken,
        "background": conversion.background,
        "max_value": conversion.max_value,
    }
    read_all = joined([(size, read(part)) for size, part in zip(sizes, each)])
    source = Source(folder.resolve().name, about, sum(sizes), read_all)
    images, known = open_store(source, options.store, options.report)
    whole = known["broken"]
    paths = (path for part in each for path in part.paths())
    skipped = tuple(path for path, is_broken in zip(paths, whole) if is_broken)
    rows = []
    limits = (options.limit, *(None for _ in parts[1:]))
    for part, order, limit in zip(parts, orders, limits):
        first = sum(sizes[: each.index(part)])
        files = order[~whole[first + order]][:limit]
        if not len(files):
            raise _none_left(len(order), skipped[0])
        rows.append((first + files, files))
    # Grey if the images in use are, as in memory; others may be in colour.
    if images.shape[-1] == 3 and not any(known["rgb"][row].any() for row, _ in rows):
        images = images[..., :1]
    return [(RowView(images, row), files) for row, files in rows], skipped


def _none_left(files, first):
    return DataError(
        f"no image is left to train or test with: all {files} files of one part "
        f"cannot be read, {first} first; repair them or give another folder."
    )


class _Reader:
    """Reader of image files that checks that all images have one size."""

    def __init__(self, options, conversion):
        self.options, self.conversion = options, conversion
        self.first = None
        self.grey = True
        self.skipped = []

    def image(self, path):
        """Read one image, or record a broken file in `skipped` and return `None`."""
        try:
            image = read_image(path, self.conversion)
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
