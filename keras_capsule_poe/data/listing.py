"""The one list of image files: of a folder on disk or in a .zip, with classes and what is left out.

Paths are not kept in memory, since there may be millions.
"""

import array
import collections
import functools
import hashlib
import os
import re

import numpy as np

from keras_capsule_poe.data.array_names import is_array
from keras_capsule_poe.data.image_files import extensions
from keras_capsule_poe.data.trees import page_numbers
from keras_capsule_poe.errors import DataError, counted, listing

# Folders and files that only a system makes, in lower case. Names with a dot are hidden anyway.
_SYSTEM = {
    *("__macosx", "icon\r", "network trash folder", "temporary items", "desktop folder"),
    *("$recycle.bin", "recycler", "recycled", "system volume information", "found.000"),
    *("thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "$windows.~bt"),
    *("lost+found", "__pycache__", "@eadir", "#recycle", "@recycle", "@recently-snapshot"),
    *("@__thumb", "#snapshot", "@snapshot", "@sharebin", "@tmp", "@sharesnap", "~snapshot"),
}
# Formats of which every page is an image of its own. Others may hold a preview or a depth map.
_OF_PAGES = (".tif", ".tiff", ".gif")
# Words of folders that hold the images of a set for segmentation, and of those with its masks.
_OF_IMAGES = re.compile(r"im(age|g)|photo|picture|input|original|jpe?g|rgb|scan|frame|raw|^x$")
_OF_MASKS = re.compile(r"mask|label|annot|segment|truth|trimap|target|matte|^(gt|seg|y)$")
# A mask beside its image: `1_mask.png` beside `1.png`.
_MASK = re.compile(r"(.+?)[ _-]*(mask|seg|segmentation|gt|groundtruth)([ _-]?\d+)?$", re.I)


class LeftOut:
    """Files and folders that are not read.

    Attributes:
        others, unread: `Counter`s of the endings of other files, and of hidden ones by name.
        masks, tables: lists of the paths of masks beside images, and of files of labels.
        lines: list of str, notes on links and folders.
    """

    def __init__(self):
        self.others, self.unread = collections.Counter(), collections.Counter()
        self.lines, self.masks, self.tables = [], [], []

    def notes(self):
        """Return lines on all of them."""
        found = []
        if self.others:
            files = counted(sum(self.others.values()), "file")
            found.append(f"{files} of other kinds ({_kinds(self.others)}).")
        if self.unread:
            found.append(f"hidden files and folders, or those of a system ({_kinds(self.unread)}).")
        if self.masks:
            masks = counted(len(self.masks), "mask")
            found.append(f"{masks} of other images ({self.masks[0]} first).")
        found += self.lines[:3]
        if len(self.lines) > 3:
            found.append(f"{len(self.lines) - 3} more links or folders.")
        return [f"Left out: {line}" for line in found]

    def add(self, other):
        """Count what another one counts, too."""
        self.others.update(other.others)
        self.unread.update(other.unread)
        self.lines += other.lines
        self.masks += other.masks
        self.tables += other.tables
        return self


def _kinds(counter):
    """Return the most common words of a `Counter` with their counts."""
    shown = [f"{count} {kind}" for kind, count in counter.most_common(6)]
    more = [f"{len(counter) - 6} more kinds"] if len(counter) > 6 else []
    return ", ".join(shown + more)


class Entries:
    """Names of the sub-folders and image files of a folder, and of links among them.

    Attributes:
        tables, arrays: names of files that may hold labels, and of arrays.
        is_run: bool, whether the folder is one of a model.
        left_out: `LeftOut`.
    """

    def __init__(self, tree, folder):
        # Names only: directory entries take ten times as much memory.
        self.folders, self.images, self.links = [], [], set()
        self.tables, self.arrays, self.is_run = [], [], False
        self.left_out = LeftOut()
        try:
            for name, is_folder, is_link in tree.scan(folder):
                self._add(name, is_folder, is_link, tree.version)
        except OSError as error:
            raise _unreadable(folder, error) from error
        for names in (self.folders, self.images, self.tables, self.arrays):
            names.sort()
        if tree.version > 2:
            self._leave_masks_out(folder)

    def _add(self, name, is_folder, is_link, version):
        if name.startswith(".") or (version > 2 and name.lower() in _SYSTEM):
            self.left_out.unread["._*" if name.startswith("._") else name.rstrip()] += 1
            return
        suffix = os.path.splitext(name)[1].lower()
        if not is_folder and suffix not in extensions():
            self.is_run |= name == "run.json"
            if suffix in TABLES:
                self.tables.append(name)
            elif is_array(name):
                self.arrays.append(name)
            self.left_out.others[suffix or name] += 1
            return
        (self.folders if is_folder else self.images).append(name)
        if is_link:
            self.links.add(name)

    def _leave_masks_out(self, folder):
        """Remove `1_mask.png` from the images if there is a `1.png`."""
        found = [(name, _MASK.match(os.path.splitext(name)[0])) for name in self.images]
        if not any(match for _, match in found):
            return
        stems = {os.path.splitext(name)[0] for name in self.images}
        masks = {name for name, match in found if match and match[1] in stems}
        self.images = [name for name in self.images if name not in masks]
        self.left_out.masks += [os.path.join(folder, name) for name in sorted(masks)]


TABLES = (".csv", ".tsv")


def _unreadable(folder, error):
    return DataError(f"folder {folder} cannot be read: {error.strerror or error}.")


class Listing:
    """Image files below a folder in sorted order; first-level sub-folders are the classes.

    Links are followed to folders outside, each of which is read once. Hidden files and those of a
    system are left out. Every page of a TIFF or GIF file is an image.

    Args:
        tree: `Folder` or `Archive`.
        root: path (str) of a folder in it, or of one file.
        is_chosen: bool, whether the user says that its sub-folders are classes.

    Attributes:
        classes: int64 array, the number of the class of each image.
        class_names: first-level sub-folders in sorted order; None if an image lies outside them.
        loose: path of an image outside the sub-folders, or None.
        nested: path of an image in a sub-folder of a class, or None.
        empty: list of str, first-level sub-folders without images.
        files: int64 array, the number of the file of each image; None if each file has one.
        left_out: `LeftOut`.
    """

    def __init__(self, tree, root, is_chosen=False):
        self.tree, self.root, self.left_out = tree, os.fspath(root), LeftOut()
        self._is_chosen = is_chosen
        numbers, classes, self.loose, self.nested = {}, array.array("q"), None, None
        self._pages, self.file_count = {}, 0
        for path in self._walk(self.left_out):
            top, inside, rest = path[len(self.root) :].lstrip(os.sep).partition(os.sep)
            if not inside:
                self.loose = self.loose or path
            if os.sep in rest:
                self.nested = self.nested or path
            pages = self._pages_of(path)
            if len(pages) > 1:
                self._pages[self.file_count] = pages
            number = numbers.setdefault(top, len(numbers)) if inside else 0
            classes.extend([number] * len(pages))
            self.file_count += 1
        self.classes = np.frombuffer(classes, np.int64) if classes else np.empty(0, np.int64)
        self.class_names = tuple(map(as_text, numbers)) if numbers and not self.loose else None
        self.has_folders = bool(numbers)
        empty = [name for name in self._tops if name not in numbers]
        lines = " ".join(self.left_out.lines)
        self.empty = [as_text(each) for each in empty if os.path.join(self.root, each) not in lines]

    def _pages_of(self, path):
        is_paged = self.tree.version > 2 and path.lower().endswith(_OF_PAGES)
        return page_numbers(path, self.tree.open) if is_paged else (0,)

    def _walk(self, left_out):
        """Iterate over the paths (str) of the files and fill `left_out`."""
        real, seen = self.tree.real(self.root), set()
        self._tops = []

        def inside(folder):
            try:
                key = self.tree.identity(folder)
            except OSError as error:
                raise _unreadable(folder, error) from error
            if key in seen:
                left_out.lines.append(f"{folder} links to a folder that is read already.")
                return
            seen.add(key)
            entries = Entries(self.tree, folder)
            if folder != self.root and entries.is_run:
                left_out.lines.append(f"{folder} is a model folder.")
                return
            left_out.add(entries.left_out)
            left_out.tables += [os.path.join(folder, name) for name in entries.tables]
            folders = self._without_masks(folder, entries, left_out)
            for name in sorted([*folders, *entries.images]):
                path = os.path.join(folder, name)
                if name in entries.links and self._leads_inside(path, real):
                    left_out.lines.append(f"{path} links to images of the same folder.")
                elif name in folders:
                    if folder == self.root:
                        self._tops.append(name)
                    yield from inside(path)
                else:
                    yield path

        if self.tree.is_folder(self.root):
            return inside(self.root)
        return iter([self.root] if self.tree.has(self.root) else [])

    def _without_masks(self, folder, entries, left_out):
        """Return the sub-folders that hold no masks of the images in another one."""
        is_chosen = folder == self.root and self._is_chosen
        masks = None if is_chosen else masks_in(self.tree, folder, entries)
        if masks is None:
            return set(entries.folders)
        of_images, of_masks = masks
        if folder == self.root:
            raise DataError(
                f"{of_images}/ and {of_masks}/ in {folder} hold files of the same names: this is "
                "a set for segmentation, and masks are no class. Give the folder of images alone. "
                f"Received: {folder}.",
                hint="train_dir",
            )
        path = os.path.join(folder, of_masks)
        left_out.lines.append(f"{path}, the masks of the images in {of_images}/.")
        return set(entries.folders) - {of_masks}

    def _leads_inside(self, link, root):
        """Return whether a link leads to a visible place below `root`, which is read elsewhere."""
        if not self.tree.exists(link):
            return False
        inside = os.path.relpath(self.tree.real(link), root).split(os.sep)
        # Hidden folders are not read, for instance those where git-annex keeps the files.
        is_hidden = any(part[:1] == "." for part in inside if part != ".")
        return inside[0] != os.pardir and not is_hidden

    def __len__(self):
        return len(self.classes)

    def paths(self):
        """Iterate over the paths (str) of the files."""
        return self._walk(LeftOut())

    def counted(self):
        """Iterate over the path of each file and the number of images in it."""
        for number, path in enumerate(self.paths()):
            yield path, len(self._pages.get(number, (0,)))

    def items(self, first=0):
        """Iterate over the images from number `first` on: the file, its page and a name."""
        number = 0
        for file, path in enumerate(self.paths()):
            pages = self._pages.get(file)
            for page in pages or (0,):
                if number >= first:
                    name = f"{path}, page {page + 1}" if pages else path
                    yield self.tree.file(path), page, name
                number += 1

    @functools.cached_property
    def files(self):
        """int64 array, the number of the file of each image; None if each file has one."""
        if not self._pages:
            return None
        counts = [len(self._pages.get(file, (0,))) for file in range(self.file_count)]
        return np.repeat(np.arange(self.file_count), counts)

    @functools.cached_property
    def fingerprint(self):
        """Hash of the name, size and modification time of each file."""
        digest = hashlib.sha256()
        for path in self.paths():
            try:
                stamp = self.tree.stamp(path)
            except OSError as error:
                raise _unreadable(path, error) from error
            digest.update(os.fsencode(path[len(self.root) :]) + b"\0" + stamp.encode())
        if self._pages:
            digest.update(repr(self._pages).encode())
        return digest.hexdigest()

    def notes(self):
        """Return a list of lines on pages and empty classes."""
        found = []
        if self._pages:
            pages = sum(map(len, self._pages.values()))
            files = counted(len(self._pages), "file")
            found.append(
                f"Each of the {pages} pages of {files} in {self.root} is an image. Pages of a file "
                "stay together."
            )
        if self.empty and self.class_names:
            found.append(f"Folders of {self.root} without images: {few(self.empty)}.")
        return found


def masks_in(tree, folder, entries):
    """Return the names of two sub-folders, of images and of their masks, or None."""
    if tree.version < 3:
        return None
    of_images = [name for name in entries.folders if _OF_IMAGES.search(name.lower())]
    of_masks = [name for name in entries.folders if _OF_MASKS.search(name.lower())]
    for images in of_images:
        for masks in of_masks:
            if images != masks and _share_names(tree, folder, images, masks):
                return images, masks
    return None


def _share_names(tree, folder, images, masks):
    """Return whether most files of the second sub-folder have names of files of the first."""
    found = []
    for name in (images, masks):
        stems = _stems(tree, os.path.join(folder, name))
        found.append({match[1] if (match := _MASK.match(stem)) else stem for stem in stems})
    return len(found[0] & found[1]) > len(found[1]) / 2


def _stems(tree, folder):
    """Iterate over the names of all image files below a folder, without their extensions."""
    entries = Entries(tree, folder)
    for name in entries.images:
        yield os.path.splitext(name)[0]
    for name in entries.folders:
        if name not in entries.links:
            yield from _stems(tree, os.path.join(folder, name))


def as_text(name):
    """Return a folder's name as text that can be printed and written."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def few(names):
    """Return the first names, separated by commas."""
    return listing(map(as_text, names), 5)
