"""Image files of a folder, listed without keeping millions of paths in memory."""

import array
import collections
import dataclasses
import functools
import hashlib
import itertools
import os
import re
from pathlib import Path

import numpy as np

from keras_capsule_poe.data.groups import check_apart, groups_of_files
from keras_capsule_poe.data.groups import split as split_by
from keras_capsule_poe.data.image_files import UnreadableImage, extensions
from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.labels import Part, Words, number_labels
from keras_capsule_poe.data.mapping import RowView, spread
from keras_capsule_poe.data.pixels import check_room
from keras_capsule_poe.data.preparation import Preparation, prepare
from keras_capsule_poe.data.store import Source, open_store
from keras_capsule_poe.data.streams import by_class
from keras_capsule_poe.data.survey import SURVEYED, recorded, survey
from keras_capsule_poe.errors import DataError

# Usual names of folders, without prefix and suffix: `seg_train` and `test_images` count, too.
SPLITS = {
    "train": ("train", "training"),
    "test": ("test", "testing", "tests"),
    "validation": ("val", "valid", "validation", "dev", "eval", "evaluation"),
}


def load_folder(folder, options):
    """Load all images below `folder`, split into training, test and maybe held-out images."""
    options.refuse("a folder of images", "column", "data_dir", "manual_dir")
    folder = Path(folder)
    parts, notes = _parts(folder, options)
    # Parts are drawn and ordered by class.
    drawn_by = {
        split: options.drawn_by(part.class_names and part.classes, len(part))
        for split, part in parts.items()
    }
    orders = {split: by_class(labels, options.seed) for split, labels in drawn_by.items()}
    groups = _groups(parts, options)
    numbered, more = _labels(parts)
    if "test" not in parts:
        first, test = split_by(
            drawn_by["train"], options.test_fraction, options.seed, groups.get("train")
        )
        orders |= {"train": first, "test": test}
        for each in (parts, groups, numbered.labels):
            each |= {"test": each["train"]} if "train" in each else {}
        # The order of parts is that of files of a store.
        parts = {split: parts[split] for split in ("train", "test", "validation") if split in parts}
    given, preparation, converted = _preparation(parts.values(), options)
    read = _read if options.store is None else _stored
    each = [(part, orders[split]) for split, part in parts.items()]
    found, skipped, uses = read(folder, each, options, preparation)
    loose = next((part.loose for part in parts.values() if part.loose), None)

    def image_set(split, images, files):
        labels = numbered.labels[split][files] if numbered.labels else None
        extras = {"groups": groups[split][files]} if groups else {}
        names = numbered.class_names
        return ImageSet(images, labels, names, str(folder), extras, unlabelled=loose)

    sets = {split: image_set(split, *pair) for split, pair in zip(parts, found)}
    more = (*numbered.notes, *more, *_nested(parts, options), *converted)
    notes = (*notes, *_notes_on(dict.fromkeys(parts.values())), *more)
    kept = recorded(preparation, given, uses)
    return ImageData(sets["train"], sets["test"], skipped, sets.get("validation"), notes, kept)


def _labels(parts):
    """Return the labels of the parts by `number_labels`, and notes on images without a class."""
    if all(part.class_names for part in parts.values()):
        words = {split: Words(part.classes, part.class_names) for split, part in parts.items()}
        each = {split: Part(words[split], len(part), part.root) for split, part in parts.items()}
        return number_labels(each), ()
    mixed = [part for part in parts.values() if part.loose and part.has_folders]
    return number_labels({}), tuple(
        f"The images have no labels: {part.loose} lies outside the class folders."
        for part in dict.fromkeys(mixed)
    )


def _groups(parts, options):
    """Return the groups of the files of each part, or an empty dict; see `load_images`."""
    if options.groups is None:
        return {}
    known, found = {}, {}
    for split, part in parts.items():
        paths = (path[len(part.root) :] for path in part.paths())
        depth = 1 if part.class_names else 0
        found[split] = groups_of_files(paths, options.groups, known, depth)
    check_apart(found, list(known))
    return found


def _nested(parts, options):
    """Return a note if class folders hold sub-folders, which may be groups."""
    nested = [part.nested for part in parts.values() if part.class_names and part.nested]
    if options.groups is not None or not nested:
        return ()
    return (
        f"Class folders hold sub-folders, such as {os.path.dirname(nested[0])}. If the images of "
        'one show the same object, `groups="folder"` keeps them together, in one part of the data.',
    )


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
    train = parts["train"]
    if not len(train):
        kinds = ", ".join(_notes_on([train])) or "It has no files that Pillow reads."
        raise DataError(f"folder {train.root} holds no images. {kinds}")
    kept = {}
    for split, part in parts.items():
        is_unlabelled = train.class_names and not part.class_names
        if not len(part):
            notes += (f"{part.root} holds no images.",)
        elif is_unlabelled and options.data_version > 1:
            notes += (
                f"Left out: the images of {part.root}, as {part.loose} has no class; those of "
                f"{train.root} have.",
            )
        else:
            kept[split] = part
    return kept, notes


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
        sample += [(path, 0) for number, path in enumerate(part.paths()) if number in wanted]
    return given, *survey(sample, given)


def _read(folder, parts, options, preparation):
    """Read pairs (`Listing`, order) into memory.

    Returns a list of pairs (images, file numbers), a tuple of the skipped paths, and what the
    files have used, see `recorded`.
    """
    reader, found, limit = _Reader(options, preparation), [], options.limit
    for part, order in parts:
        paths, images, files = list(part.paths()), [], []
        for number in order:
            if len(images) == limit:
                break
            image, _ = reader.image(paths[number])
            if image is None:
                continue
            if not images:
                # Two copies: the list of images, then the stacked array.
                check_room(min(len(order), limit or len(order)), image.shape, copies=2)
            images.append(image)
            files.append(number)
        if not images:
            raise _none_left(len(order), paths[order[0]])
        found.append((images, np.array(files)))
        limit = None
    stacked = [(reader.stack(images), files) for images, files in found]
    return stacked, tuple(reader.skipped), reader.uses


def _stored(folder, parts, options, preparation):
    """Read pairs (`Listing`, order) as `_read` does, through a store on disk."""
    each = list(dict.fromkeys(part for part, _ in parts))
    sizes = [len(part) for part in each]

    def every_path():
        return (path for part in each for path in part.paths())

    def read(part, first):
        reader = _Reader(options, preparation)
        # A blank image fills the rows of unreadable files.
        readable = (image for path in every_path() if (image := reader.image(path)[0]) is not None)
        if (blank := next(readable, None)) is None:
            raise _none_left(sum(sizes), reader.skipped[0])
        for path in each[part].paths(first):
            image, uses = reader.image(path)
            known = {
                "broken": np.array([image is None]),
                "rgb": np.array([image is not None and image.shape[-1] == 3]),
                "uses": np.array([uses], np.uint8),
            }
            yield (np.zeros_like(blank) if image is None else image)[np.newaxis], known

    about = {
        "folder": str(folder.resolve()),
        "parts": [str(Path(part.root).resolve()) for part in each],
        "files": [part.fingerprint for part in each],
        "skip_broken": options.skip_broken,
        "preparation": dataclasses.asdict(preparation),
    }
    source = Source(folder.resolve().name, about, sizes, read)
    images, known = open_store(source, options.store, options.report)
    skipped = tuple(itertools.compress(every_path(), known["broken"]))
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

    def image(self, path):
        """Read one image and what it used, or record a broken file in `skipped`: (None, 0)."""
        try:
            image, _, uses = prepare(path, self.preparation, invert="no")
        except UnreadableImage as error:
            if not self.options.skip_broken:
                raise DataError(
                    f"{path} {error}; remove or repair it.", hint="skip_broken"
                ) from error
            self.skipped.append(path)
            return None, 0
        self.uses |= uses
        height, width, channels = image.shape
        self.grey = self.grey and channels == 1
        self.first = self.first or (path, height, width)
        if (height, width) != self.first[1:]:
            raise DataError(
                "all images of a folder must have the same size, unless `image_size` is given. "
                f"Received: {self.first[0]} of {self.first[1]}x{self.first[2]} and {path} of "
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


class Entries:
    """Names of visible sub-folders and image files, of links among them, and other extensions."""

    def __init__(self, folder):
        # Names only: directory entries take ten times as much memory.
        self.folders, self.images, self.links = [], [], set()
        self.others = collections.Counter()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.name.startswith("."):
                        self._add(entry)
        except OSError as error:
            raise _unreadable(folder, error) from error
        self.folders.sort()
        self.images.sort()

    def _add(self, entry):
        suffix = os.path.splitext(entry.name)[1].lower()
        try:
            is_folder = entry.is_dir()
        except OSError:
            # A link that leads to itself.
            is_folder = False
        if not is_folder and suffix not in extensions():
            self.others[suffix or entry.name] += 1
            return
        (self.folders if is_folder else self.images).append(entry.name)
        if entry.is_symlink():
            self.links.add(entry.name)


def _unreadable(folder, error):
    return DataError(f"folder {folder} cannot be read: {error.strerror or error}.")


class Listing:
    """Image files below a folder in sorted order; first-level sub-folders are the classes.

    Links are followed to folders outside, each of which is read once. Hidden files are left out.

    Attributes:
        classes: int64 array, the number of the class of each file.
        class_names: first-level sub-folders in sorted order; None if an image lies outside them.
        loose: path of an image outside the sub-folders, or None.
        nested: path of an image in a sub-folder of a class, or None.
        others: `Counter` of the extensions of files that are no images.
        left_out: list of str, notes on folders and links that were not followed.
    """

    def __init__(self, root):
        self.root = os.fspath(root)
        self.others, self.left_out = collections.Counter(), []
        numbers, classes, self.loose, self.nested = {}, array.array("q"), None, None
        for path in self._walk(self.others, self.left_out):
            top, inside, rest = path[len(self.root) :].lstrip(os.sep).partition(os.sep)
            if not inside:
                self.loose = self.loose or path
            if os.sep in rest:
                self.nested = self.nested or path
            classes.append(numbers.setdefault(top, len(numbers)) if inside else 0)
        self.classes = np.frombuffer(classes, np.int64) if classes else np.empty(0, np.int64)
        self.class_names = tuple(map(_as_text, numbers)) if numbers and not self.loose else None
        self.has_folders = bool(numbers)

    def _walk(self, others, left_out):
        """Iterate over the paths (str) and fill `others` and `left_out`."""
        real, seen = os.path.realpath(self.root), set()

        def inside(folder):
            try:
                status = os.stat(folder)
            except OSError as error:
                raise _unreadable(folder, error) from error
            if (status.st_dev, status.st_ino) in seen:
                left_out.append(f"{folder} links to a folder that is read already.")
                return
            seen.add((status.st_dev, status.st_ino))
            if folder != self.root and os.path.isfile(os.path.join(folder, "run.json")):
                left_out.append(f"{folder} is a model folder.")
                return
            entries = Entries(folder)
            others.update(entries.others)
            folders = set(entries.folders)
            for name in sorted(entries.folders + entries.images):
                path = os.path.join(folder, name)
                if name in entries.links and _leads_inside(path, real):
                    left_out.append(f"{path} links to images of the same folder.")
                elif name in folders:
                    yield from inside(path)
                else:
                    yield path

        return inside(self.root) if os.path.isdir(self.root) else iter(())

    def __len__(self):
        return len(self.classes)

    def paths(self, first=0):
        """Iterate over the paths (str) from file number `first` on."""
        return itertools.islice(self._walk(collections.Counter(), []), first, None)

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


def _leads_inside(link, root):
    """Return whether a link leads to a visible place below `root`, which is read elsewhere."""
    if not os.path.exists(link):
        return False
    inside = os.path.relpath(os.path.realpath(link), root).split(os.sep)
    # Hidden folders are not read, for instance those where git-annex keeps the files.
    return inside[0] != os.pardir and not any(part[:1] == "." for part in inside if part != ".")


def _as_text(name):
    """Return a folder's name as text that can be printed and written."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _few(names):
    """Return the first names, separated by commas."""
    shown = ", ".join(map(_as_text, names[:5]))
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _notes_on(parts):
    """Return a tuple of lines on the files of `Listing`s that are not used."""
    others, left_out = collections.Counter(), []
    for part in parts:
        others.update(part.others)
        left_out += part.left_out
    kinds = [f"{count} {kind}" for kind, count in others.most_common(6)]
    if len(others) > 6:
        kinds.append(f"{len(others) - 6} more kinds")
    count = sum(others.values())
    files = "files" if count > 1 else "file"
    lines = [f"Left out: {count} {files} of other kinds ({', '.join(kinds)})."] if others else []
    lines += [f"Left out: {line}" for line in left_out[:3]]
    if len(left_out) > 3:
        lines.append(f"Left out: {len(left_out) - 3} more links or folders.")
    return tuple(lines)


def split_of(name):
    """Return the split, "train", "test" or "validation", that a folder's name stands for, or None.

    >>> [split_of(name) for name in ("Training", "seg_test", "val2017", "trains", "latest")]
    ['train', 'test', 'validation', None, None]
    """
    words = re.findall("[a-z]+", name.lower())
    for split, names in SPLITS.items():
        if words and (words[0] in names or words[-1] in names):
            return split
    return None


def find_splits(folder):
    """Return the paths of the sub-folders of each split, and the notes on them.

    Returns:
        Dict with `"train"` and maybe `"test"` and `"validation"`, and a tuple of str. Without
        sub-folders of splits, `"train"` is `folder` itself, or the only folder in it.

    Raises:
        DataError: If the sub-folders may be splits but their names do not say which.
    """
    folder, notes = _unwrapped(Path(folder))
    names, found = Entries(folder).folders, {}
    for name in names:
        if split := split_of(name):
            found.setdefault(split, []).append(name)
    if "train" in found and len(found) > 1:
        for split, several in found.items():
            if len(several) > 1:
                raise DataError(
                    f"{folder} must have one folder of {split} images. "
                    f"Received: {', '.join(several)}.",
                    hint="train_dir",
                )
        ignored = [name for name in names if split_of(name) is None]
        if ignored:
            notes += (f"Left out: {_few(ignored)} in {folder}, besides the splits.",)
        return {split: _class_root(folder / several[0]) for split, several in found.items()}, notes
    if names and len(names) == sum(map(len, found.values())) and "train" not in found:
        raise DataError(
            f"{folder} must hold training images, too. Received: {_few(names)}.", hint="train_dir"
        )
    inside = []
    for name in names:
        entries = Entries(folder / name)
        inside.append([each for each in entries.folders if each not in entries.links])
    if len(names) > 1 and inside[0] and all(each == inside[0] for each in inside):
        raise DataError(
            f"the folders in {folder} hold the same sub-folders, so they may be splits of the "
            f"images or classes. Received: {_few(names)}, each with {_few(inside[0])}.",
            hint="train_dir",
        )
    return {"train": folder}, notes


def _unwrapped(folder):
    """Return the first folder that does not hold one folder of folders alone, and notes."""
    notes = ()
    while (only := _only(folder)) and (split_of(only.name) or Entries(only).folders):
        if split_of(only.name) in ("test", "validation"):
            raise DataError(
                f"{folder} must hold training images, too. Received: {only.name}/ alone.",
                hint="train_dir",
            )
        notes = (f"{only} is the only folder: all images are taken from it.",)
        folder = only
    return folder, notes


def _class_root(folder):
    """Return the folder inside which class folders lie, if archives have wrapped it in others."""
    while (only := _only(folder)) and Entries(only).folders:
        folder = only
    return folder


def _only(folder):
    """Return the sub-folder of a folder that holds nothing else that is read, or None."""
    entries = Entries(folder)
    is_alone = len(entries.folders) == 1 and not entries.images
    return folder / entries.folders[0] if is_alone else None
