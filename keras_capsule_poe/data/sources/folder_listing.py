"""Image files of a folder, listed without keeping millions of paths in memory."""

import array
import functools
import hashlib
import itertools
import os

import numpy as np

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
