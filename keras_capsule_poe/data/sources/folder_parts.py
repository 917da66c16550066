"""Image files below a folder, and its sub-folders of training, test and validation images."""

import array
import collections
import functools
import hashlib
import itertools
import os
import re
from pathlib import Path

import numpy as np

from keras_capsule_poe.data.sources.image_files import extensions
from keras_capsule_poe.errors import DataError

# Usual names of folders, without prefix and suffix: `seg_train` and `test_images` count, too.
SPLITS = {
    "train": ("train", "training"),
    "test": ("test", "testing", "tests"),
    "validation": ("val", "valid", "validation", "dev", "eval", "evaluation"),
}
# Kinds of other files that are named.
_NAMED = 6


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


class Walk:
    """Iterator over the image files below a folder, sorted, without hidden files.

    Links are followed to folders outside, each of which is read once.

    Attributes:
        others: `Counter` of the extensions of files that are no images.
        left_out: list of str, notes on folders and links that were not followed.
    """

    def __init__(self, root):
        self.root = os.fspath(root)
        self._real = os.path.realpath(self.root)
        self._seen = set()
        self.others, self.left_out = collections.Counter(), []

    def __iter__(self):
        return self._inside(self.root) if os.path.isdir(self.root) else iter(())

    def _inside(self, folder):
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in self._seen:
                self.left_out.append(f"{folder} links to a folder that is read already.")
                return
            self._seen.add((status.st_dev, status.st_ino))
            if folder != self.root and os.path.isfile(os.path.join(folder, "run.json")):
                self.left_out.append(f"{folder} is a model folder.")
                return
            # Names only: directory entries take ten times as much memory.
            names, folders = [], set()
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if self._is_repeated(entry):
                        self.left_out.append(f"{entry.path} links to images of the same folder.")
                    elif _is_folder(entry):
                        folders.add(entry.name)
                        names.append(entry.name)
                    elif os.path.splitext(entry.name)[1].lower() in extensions():
                        names.append(entry.name)
                    else:
                        self.others[os.path.splitext(entry.name)[1].lower() or entry.name] += 1
            for name in sorted(names):
                path = os.path.join(folder, name)
                if name in folders:
                    yield from self._inside(path)
                else:
                    yield path
        except OSError as error:
            raise DataError(
                f"folder {folder} cannot be read: {error.strerror or error}."
            ) from error

    def _is_repeated(self, entry):
        """Return whether an entry is a link to what this walk reads elsewhere."""
        if not entry.is_symlink() or not os.path.exists(entry.path):
            return False
        inside = os.path.relpath(os.path.realpath(entry.path), self._real).split(os.sep)
        # Hidden folders are not read, for instance those where git-annex keeps the files.
        return inside[0] != os.pardir and not any(part[:1] == "." for part in inside if part != ".")


def _is_folder(entry):
    try:
        return entry.is_dir()
    except OSError:
        # A link that leads to itself.
        return False


class Listing:
    """Image files below a folder in sorted order; first-level sub-folders are the classes."""

    def __init__(self, root):
        self.root = os.fspath(root)
        walk = Walk(root)
        numbers, classes, self.loose = {}, array.array("q"), None
        for path in walk:
            top, inside, _ = path[len(self.root) :].lstrip(os.sep).partition(os.sep)
            if not inside:
                self.loose = self.loose or path
            classes.append(numbers.setdefault(top, len(numbers)) if inside else 0)
        self.classes = np.frombuffer(classes, np.int64) if classes else np.empty(0, np.int64)
        # First-level sub-folders in sorted order; None if an image lies outside them.
        self.class_names = tuple(map(_as_text, numbers)) if numbers and not self.loose else None
        self.has_folders = bool(numbers)
        self.others, self.left_out = walk.others, walk.left_out

    def __len__(self):
        return len(self.classes)

    def paths(self, first=0):
        """Iterate over the paths (str) from file number `first` on."""
        return itertools.islice(Walk(self.root), first, None)

    @functools.cached_property
    def fingerprint(self):
        """Hash of the name, size and modification time of each file."""
        digest = hashlib.sha256()
        for path in self.paths():
            try:
                status = os.stat(path)
            except OSError as error:
                raise DataError(
                    f"folder {path} cannot be read: {error.strerror or error}."
                ) from error
            digest.update(os.fsencode(path[len(self.root) :]) + b"\0")
            digest.update(f"{status.st_size} {status.st_mtime_ns}\0".encode())
        return digest.hexdigest()


def _as_text(name):
    """Return a folder's name as text that can be printed and written."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def notes_on(parts):
    """Return a tuple of lines on the files of `Listing`s that are not used."""
    others, left_out = collections.Counter(), []
    for part in parts:
        others.update(part.others)
        left_out += part.left_out
    kinds = [f"{count} {kind}" for kind, count in others.most_common(_NAMED)]
    if len(others) > _NAMED:
        kinds.append(f"{len(others) - _NAMED} more kinds")
    count = sum(others.values())
    files = "files" if count > 1 else "file"
    lines = [f"Left out: {count} {files} of other kinds ({', '.join(kinds)})."] if others else []
    lines += [f"Left out: {line}" for line in left_out[:3]]
    if len(left_out) > 3:
        lines.append(f"Left out: {len(left_out) - 3} more links or folders.")
    return tuple(lines)


def find_splits(folder):
    """Return the paths of the sub-folders of each split, and the notes on them.

    Returns:
        Dict with `"train"` and maybe `"test"` and `"validation"`, and a tuple of str. Without
        sub-folders of splits, `"train"` is `folder` itself, or the only folder in it.

    Raises:
        DataError: If the sub-folders may be splits but their names do not say which.
    """
    folder, notes = Path(folder), ()
    while True:
        names, has_images = _entries(folder)
        only = folder / names[0] if len(names) == 1 and not has_images else None
        if only is None or not (split_of(only.name) or _entries(only)[0]):
            break
        if split_of(only.name) in ("test", "validation"):
            raise DataError(
                f"{folder} must hold training images, too. Received: {only.name}/ alone.",
                hint="train_dir",
            )
        notes = (f"{only} is the only folder: all images are taken from it.",)
        folder = only
    found = {}
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
        return {split: _only(folder / several[0]) for split, several in found.items()}, notes
    if names and len(names) == sum(map(len, found.values())) and "train" not in found:
        raise DataError(
            f"{folder} must hold training images, too. Received: {_few(names)}.", hint="train_dir"
        )
    inside = {
        name: tuple(
            each for each in _entries(folder / name)[0] if not (folder / name / each).is_symlink()
        )
        for name in names
    }
    if len(names) > 1 and len(set(inside.values())) == 1 and inside[names[0]]:
        raise DataError(
            f"the folders in {folder} hold the same sub-folders, so they may be splits of the "
            f"images or classes. Received: {_few(names)}, each with {_few(inside[names[0]])}.",
            hint="train_dir",
        )
    return {"train": folder}, notes


def _only(folder):
    """Return the folder inside which class folders lie, if archives have wrapped it in others."""
    names, has_images = _entries(folder)
    while len(names) == 1 and not has_images and (below := _entries(folder / names[0]))[0]:
        folder, (names, has_images) = folder / names[0], below
    return folder


def _few(names):
    """Return the first names, separated by commas."""
    shown = ", ".join(map(_as_text, names[:5]))
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _entries(folder):
    """Return the sorted visible sub-folders of a folder, and whether it holds images itself."""
    names, has_images = [], False
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if _is_folder(entry):
                    names.append(entry.name)
                else:
                    suffix = os.path.splitext(entry.name)[1].lower()
                    has_images = has_images or suffix in extensions()
    except OSError as error:
        raise DataError(f"folder {folder} cannot be read: {error.strerror or error}.") from error
    return sorted(names), has_images
