"""Image files as `ImageSet`s, in memory or from a store, from files, archives or tables."""

import contextlib
import dataclasses
import itertools
import os
import types
from typing import Any, NamedTuple

import numpy as np

from keras_capsule_poe.data.groups import split as split_by
from keras_capsule_poe.data.image_files import UnreadableImage, decode
from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.labels import DATA_VERSION, Part, number_labels
from keras_capsule_poe.data.mapping import RowView, spread
from keras_capsule_poe.data.pixels import check_room
from keras_capsule_poe.data.preparation import Preparation, prepare
from keras_capsule_poe.data.store import Source, open_store
from keras_capsule_poe.data.streams import by_class
from keras_capsule_poe.data.survey import SURVEYED, recorded, survey
from keras_capsule_poe.errors import DataError, listing

# How messages call the images of a split. The order is that of the files of a store.
CALLED = {"train": "training", "test": "test", "validation": "validation"}


class Labels(NamedTuple):
    """Labels of the parts of a data set.

    Attributes:
        given: dict by split of the labels of all images in any form that `labels.Part` takes. None
            in a list: the image is left out. An empty dict: no image has a label.
        class_names: the names of the labels 0, 1, ..., or None.
        table: path of a file that may hold labels that are missing, or None.
    """

    given: dict[str, Any]
    class_names: Any = None
    table: str | None = None


def read_files(parts, labels, groups, options, name, notes):
    """Return the `ImageData` of the files of each split.

    Args:
        parts: dict from `"train"`, and maybe `"test"` and `"validation"`, to `Listing` or `Rows`.
        labels: `Labels`.
        groups: dict of the groups (N,) of the images of each split, maybe empty.
        options: `Options`.
        name: str, of the source.
        notes: list of str.
    """
    kept, numbers, numbered = _numbered(parts, labels)
    classes = {s: options.drawn_by(numbers.get(s), len(files)) for s, files in kept.items()}
    orders = {s: kept[s][by_class(each, options.seed)] for s, each in classes.items()}
    is_split = "test" in parts
    if not is_split:
        of_kept = groups["train"][kept["train"]] if groups else None
        halves = split_by(classes["train"], options.test_fraction, options.seed, of_kept)
        orders |= {s: kept["train"][half] for s, half in zip(("train", "test"), halves)}
        parts, kept, numbers, groups = (
            {"test": each["train"], **each} if each else each
            for each in (parts, kept, numbers, groups)
        )
    if options.data_version > 2 or not is_split:
        # The first part is the one that is limited; former versions took the folder's order.
        parts = {split: parts[split] for split in CALLED if split in parts}
    given, preparation, converted = _preparation(parts.values(), options)
    read = _read if options.store is None else _stored
    each = [(part, orders[split]) for split, part in parts.items()]
    found, skipped, uses = read(name, each, options, preparation)
    loose = next((part.loose for part in parts.values() if part.loose), None)

    def image_set(split, images, files):
        extras = {"groups": groups[split][files]} if groups else {}
        known = None
        if numbers:
            # The place of each file among those with labels.
            known = numbers[split][np.searchsorted(kept[split], files)]
        return ImageSet(images, known, numbered.class_names, name, extras, loose, labels.table)

    sets = {split: image_set(split, *pair) for split, pair in zip(parts, found)}
    if skipped:
        converted = (*converted, f"Left out: files that cannot be read: {listing(skipped, 3)}.")
    return ImageData(
        sets["train"],
        sets["test"],
        skipped,
        sets.get("validation"),
        (*notes, *numbered.notes, *converted),
        recorded(preparation, given, uses),
    )


# `Options` of images of Python, for which none are given.
_NO_OPTIONS = types.SimpleNamespace(
    **dict.fromkeys(("image_size", "background", "max_value", "limit")),
    grey=False,
    skip_broken=False,
    data_version=DATA_VERSION,
)


def read_in_order(part):
    """Return the images (N, H, W, C) of a part in its order."""
    _, preparation, _ = _preparation([part], _NO_OPTIONS)
    order = np.arange(len(part))
    (found,), _, _ = _read(part.root, [(part, order)], _NO_OPTIONS, preparation)
    return found[0]


def _numbered(parts, labels):
    """Return by split the images that are used and their labels, and the `Numbered`."""
    kept, given = {split: np.arange(len(part)) for split, part in parts.items()}, {}
    for split, values in labels.given.items():
        if isinstance(values, list):
            kept[split] = np.flatnonzero([value is not None for value in values])
            values = [value for value in values if value is not None]
        given[CALLED[split]] = Part(values, len(kept[split]), f"labels of {parts[split].root}")
    numbered = number_labels(given, labels.class_names)
    return kept, {split: numbered.labels[CALLED[split]] for split in labels.given}, numbered


def _preparation(parts, options):
    """Return the `Preparation` that was given and that of all images, and notes on it."""
    given = Preparation(
        options.image_size,
        1 if options.grey else None,
        options.background,
        options.max_value,
        deep_colours=options.data_version > 2,
    )
    if options.data_version == 1:
        former = {"background": "black", "max_value": 65535, "max_float": 1}
        kept = {name: getattr(given, name) or value for name, value in former.items()}
        return given, dataclasses.replace(given, **kept), ()
    sample = []
    for part in dict.fromkeys(parts):
        wanted = set(spread(len(part), SURVEYED).tolist())
        sample += [item for number, item in enumerate(part.items()) if number in wanted]
    found, notes = survey([item[:2] for item in sample], given)
    if options.data_version > 2 and (several := [item for item in sample if _has_frames(item)]):
        count = f"{len(several)} of {len(sample)} files hold" if several[1:] else "A file holds"
        notes = (*notes, f"{count} several frames, of which the first is read: {several[0][2]}.")
    return given, found, notes


def _has_frames(item):
    """Return whether a file of which one image is read holds several."""
    file, _, name = item
    frames = []
    with contextlib.suppress(UnreadableImage):
        decode(file, wanted=lambda image: frames.append(getattr(image, "n_frames", 1)))
    # A page of a file has another name.
    return frames > [1] and name == str(file)


def _read(name, parts, options, preparation):
    """Read pairs (part, order) into memory.

    Returns a list of pairs (images, image numbers), a tuple of the skipped files, and what the
    files have used, see `recorded`.
    """
    reader, found, limit = _Reader(options, preparation), [], options.limit
    for part, order in parts:
        items, images, files = list(part.items()), [], []
        for number in order:
            if len(images) == limit:
                break
            image, _ = reader.image(items[number])
            if image is None:
                continue
            if not images:
                # Two copies: the list of images, then the stacked array.
                check_room(min(len(order), limit or len(order)), image.shape, copies=2)
            images.append(image)
            files.append(number)
        if not images:
            raise _none_left(len(order), items[order[0]][2])
        found.append((images, np.array(files)))
        limit = None
    stacked = [(reader.stack(images), files) for images, files in found]
    return stacked, tuple(reader.skipped), reader.uses


def _stored(name, parts, options, preparation):
    """Read pairs (part, order) as `_read` does, through a store on disk."""
    each = list(dict.fromkeys(part for part, _ in parts))
    sizes = [len(part) for part in each]

    def every_item():
        return (item for part in each for item in part.items())

    def read(part, first):
        reader = _Reader(options, preparation)
        # A blank image fills the rows of unreadable files.
        readable = (image for item in every_item() if (image := reader.image(item)[0]) is not None)
        if (blank := next(readable, None)) is None:
            raise _none_left(sum(sizes), reader.skipped[0])
        for item in each[part].items(first):
            image, uses = reader.image(item)
            known = {
                "broken": np.array([image is None]),
                "rgb": np.array([image is not None and image.shape[-1] == 3]),
                "uses": np.array([uses], np.uint8),
            }
            yield (np.zeros_like(blank) if image is None else image)[np.newaxis], known

    about = {
        "folder": os.path.realpath(name),
        "parts": [os.path.realpath(part.root) for part in each],
        "files": [part.fingerprint for part in each],
        "skip_broken": options.skip_broken,
        "preparation": dataclasses.asdict(preparation),
    }
    source = Source(os.path.basename(os.path.realpath(name)), about, sizes, read)
    images, known = open_store(source, options.store, options.report)
    skipped = tuple(item[2] for item in itertools.compress(every_item(), known["broken"]))
    found, limit = [], options.limit
    for part, order in parts:
        first = sum(sizes[: each.index(part)])
        files = order[~known["broken"][first + order]][:limit]
        if not len(files):
            raise _none_left(len(order), skipped[0])
        found.append((first + files, files))
        limit = None
    # Grey if the images in use are, as in memory; others may be in colour.
    if images.shape[-1] == 3 and not any(known["rgb"][rows].any() for rows, _ in found):
        images = images[..., :1]
    uses = np.bitwise_or.reduce([np.bitwise_or.reduce(known["uses"][rows]) for rows, _ in found])
    return [(RowView(images, rows), files) for rows, files in found], skipped, int(uses)


def _none_left(files, first):
    return DataError(
        f"no image is left to train or test with: all {files} files of one part "
        f"cannot be read, {first} first; repair them or give another folder."
    )


class _Reader:
    """Reader of image files that checks that all images have one size."""

    def __init__(self, options, preparation):
        self.options, self.preparation = options, preparation
        self.first = None
        self.grey = True
        self.skipped, self.uses = [], 0

    def image(self, item):
        """Read one image and what it used, or record a broken file in `skipped`: (None, 0)."""
        file, page, name = item
        try:
            image, _, uses = prepare(file, self.preparation, page, "no", name)
        except UnreadableImage as error:
            if not self.options.skip_broken:
                raise DataError(
                    f"{name} {error}; remove or repair it.", hint="skip_broken"
                ) from error
            self.skipped.append(name)
            return None, 0
        if page and image.shape[-1] == 3 and (image == image[..., :1]).all():
            # Later frames of a grey GIF file are decoded in colour.
            image = image[..., :1]
        self.uses |= uses
        height, width, channels = image.shape
        self.grey = self.grey and channels == 1
        self.first = self.first or (name, height, width)
        if (height, width) != self.first[1:]:
            raise DataError(
                "all images of a folder must have the same size, unless `image_size` is given. "
                f"Received: {self.first[0]} of {self.first[1]}x{self.first[2]} and {name} of "
                f"{height}x{width} pixels.",
                hint="image_size",
            )
        return image, uses

    def stack(self, images):
        """Stack images to (N, H, W, C), grey only if every image read was grey."""
        stacked = np.empty((len(images), *self.first[1:], 1 if self.grey else 3), np.uint8)
        for i, image in enumerate(images):
            stacked[i] = image
        return stacked
