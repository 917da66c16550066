"""Folders on disk and in a .zip archive, which `Listing` walks alike, and the files in them."""

import functools
import io
import os
import stat
import warnings
import zipfile

from keras_capsule_poe.data.image_files import UnreadableImage
from keras_capsule_poe.data.pixels import check_memory
from keras_capsule_poe.errors import first_line, reading

# Tags of a page of a TIFF file: what it is, and the bits of a smaller copy and of a mask.
_KIND, _NO_PAGE = 254, 0b101


class ImageFile:
    """A file that is not on disk by itself: its name in messages, and how to read its bytes."""

    def __init__(self, name, read):
        self._name, self._read = name, read

    def open(self, mode="rb"):
        """Return the whole file as a binary stream."""
        try:
            return io.BytesIO(self._read())
        except OSError as error:
            raise UnreadableImage(f"cannot be read: {error.strerror or error}") from error

    def __str__(self):
        return self._name


def page_numbers(path, opened=open):
    """Return the numbers of the pages of a file that are images of their own, (0,) if unknown."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with opened(path, "rb") as file, Image.open(file) as image:
                count, found = getattr(image, "n_frames", 1), []
                for page in range(count) if count > 1 else ():
                    image.seek(page)
                    if not getattr(image, "tag_v2", {}).get(_KIND, 0) & _NO_PAGE:
                        found.append(page)
                return tuple(found) or (0,)
        # Reading the image reports it.
        except Exception:
            return (0,)


class Folder:
    """The folders on disk.

    Attributes:
        version: int, of the rules, see `load_images`.
        kind: str, what messages call it.
        refused: options without a meaning for it.
    """

    kind, refused = "a folder of images", ()

    def __init__(self, version):
        self.version = version

    def scan(self, folder):
        """Iterate over the entries of a folder: name, whether it is a folder, and a link."""
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    is_folder = entry.is_dir()
                except OSError:
                    # A link that leads to itself.
                    is_folder = False
                yield entry.name, is_folder, entry.is_symlink()

    def file(self, path):
        """Return the file of a path as images are read from it."""
        return path

    def open(self, path, mode="rb"):
        """Open a regular file; anything else, such as a FIFO, may have no end."""
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError("it is no regular file")
        return open(path, mode)

    def identity(self, path):
        """Return what tells a file or folder, behind all links, from others."""
        status = os.stat(path)
        return status.st_dev, status.st_ino

    def stamp(self, path):
        """Return the size and the modification time of a file as text."""
        status = os.stat(path)
        return f"{status.st_size} {status.st_mtime_ns}\0"

    real = staticmethod(os.path.realpath)
    exists = staticmethod(os.path.exists)
    is_folder = staticmethod(os.path.isdir)
    # A link to nothing is reported when it is read.
    has = staticmethod(os.path.lexists)


class Archive:
    """The folders in a .zip archive, which is read without unpacking it. Its path is the root."""

    kind, refused = "a .zip file", ("train_dir", "test_dir")

    def __init__(self, path, version):
        self.version = version
        with reading(f"{path} cannot be read as a .zip file: it is damaged or of another kind"):
            self._archive = zipfile.ZipFile(path)
        root = os.fspath(path)
        self._files, self._folders = {}, {root: {}}
        for info in self._archive.infolist():
            # Absolute paths and those that lead out of the archive stay in it.
            parts = [part for part in info.filename.split("/") if part not in ("", ".", "..")]
            place = root
            for number, part in enumerate(parts):
                is_folder = info.is_dir() or number < len(parts) - 1
                folder, place = place, os.path.join(place, part)
                self._folders[folder].setdefault(part, is_folder)
                if is_folder:
                    self._folders.setdefault(place, {})
            if not info.is_dir():
                self._files[place] = info

    def scan(self, folder):
        return ((name, is_folder, False) for name, is_folder in self._folders[folder].items())

    def file(self, path):
        return ImageFile(path, functools.partial(self._read, path))

    def _read(self, path):
        info = self._files[path]
        check_memory(path, info.file_size)
        if info.flag_bits & 1:
            raise OSError("it is encrypted")
        try:
            return self._archive.read(info)
        # Damaged members, and unknown ways of compression: errors of several modules.
        except Exception as error:
            # Zipfile's messages hold bytes of damaged members.
            raise OSError(first_line(error)[:60]) from error

    def open(self, path, mode="rb"):
        return io.BytesIO(self._read(path))

    def identity(self, path):
        return path

    def stamp(self, path):
        return f"{self._files[path].file_size} {self._files[path].CRC}\0"

    def real(self, path):
        return path

    def exists(self, path):
        return path in self._files or path in self._folders

    has = exists

    def is_folder(self, path):
        return path in self._folders
