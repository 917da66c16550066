"""Images from a folder of image files."""

import os
from pathlib import Path

import numpy as np

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.ordering import epoch_order, hold_out
from keras_capsule_poe.data.pixels import check_room, fit_image
from keras_capsule_poe.data.sources.image_file import UnreadableImage, read_image
from keras_capsule_poe.errors import DataError

EXTENSIONS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")


def load_folder(folder, options):
    """All images below `folder`, in random order, split into training and test images."""
    options.refuse("a folder of images", "column", "data_dir", "manual_dir")
    folder = Path(folder)
    tests = [folder / name for name in ("test", "validation", "val")]
    roots = folder / "train", next((root for root in tests if root.is_dir()), tests[0])
    parts = [_image_files(root) for root in roots]
    if all(parts):
        # In random order, so that `limit` takes from every class.
        orders = [epoch_order(len(files), options.seed, 0) for files in parts]
    else:
        files = _image_files(folder)
        if not files:
            raise DataError(
                f"folder {folder} holds no images; give one with {', '.join(EXTENSIONS)} files."
            )
        roots, parts = (folder, folder), (files, files)
        orders = hold_out(len(files), options.test_fraction, options.seed)

    reader = _Reader(options)
    train = reader.read([parts[0][i] for i in orders[0]], options.limit)
    test = reader.read([parts[1][i] for i in orders[1]])
    class_of = [_class_names(root, files) for root, files in zip(roots, parts, strict=True)]
    names = tuple(sorted({*class_of[0].values(), *class_of[1].values()})) if all(class_of) else None

    def image_set(images, classes):
        labels = names and np.array([names.index(classes[f]) for f, _ in images], np.int64)
        return ImageSet(reader.stack(images), labels, names, str(folder))

    return ImageData(image_set(train, class_of[0]), image_set(test, class_of[1]), reader.skipped)


def _image_files(folder):
    """Paths of the image files below `folder`, if it exists, sorted, without hidden ones."""
    return sorted(_walk(folder)) if folder.is_dir() else []


def _walk(folder, above=()):
    """Paths of image files, also behind links, unless these lead back to a folder `above`."""
    try:
        status = os.stat(folder)
        here = status.st_dev, status.st_ino
        if here in above:
            return
        with os.scandir(folder) as entries:
            seen = [entry for entry in entries if not entry.name.startswith(".")]
        for entry in seen:
            if entry.is_dir():
                yield from _walk(Path(entry.path), (*above, here))
            elif entry.name.lower().endswith(EXTENSIONS):
                yield Path(entry.path)
    except OSError as error:
        raise DataError(f"folder {folder} cannot be read: {error.strerror or error}.") from error


def _class_names(root, files):
    """The first-level sub-folder of each file, or nothing if a file lies in none."""
    parts = {file: file.relative_to(root).parts for file in files}
    if any(len(names) == 1 for names in parts.values()):
        return {}
    return {file: names[0] for file, names in parts.items()}


class _Reader:
    """Reads files one after another and sees to it that their images fit together."""

    def __init__(self, options):
        self.options = options
        self.first = None
        self.grey = True
        self.skipped = ()

    def read(self, files, limit=None):
        """`(file, image)` pairs, at most `limit`; `skipped` grows by the broken files."""
        images = []
        for file in files:
            if len(images) == limit:
                break
            try:
                image = read_image(file)
            except UnreadableImage as error:
                if not self.options.skip_broken:
                    raise DataError(
                        f"{file} {error}; remove or mend it.", mend="skip_broken"
                    ) from error
                self.skipped += (str(file),)
                continue
            image = fit_image(image, self.options.image_size, self.options.grey)
            self._compare(file, image)
            if not images:
                # One by one, and then side by side.
                check_room(min(len(files), limit or len(files)), image.shape, copies=2)
            images.append((file, image))
        if not images:
            raise DataError(
                f"no image is left to train or test with: all {len(files)} files of one part "
                f"cannot be read, {files[0]} first; repair them or give another folder."
            )
        return images

    def _compare(self, file, image):
        size = image.shape[:2]
        self.grey = self.grey and image.shape[-1] == 1
        if self.first is None:
            self.first = file, size
        elif size != self.first[1]:
            (other, (height, width)) = self.first
            raise DataError(
                "all images of a folder must have the same size, unless `image_size` is given. "
                f"Received: {other} of {height}x{width} and {file} of {size[0]}x{size[1]} pixels.",
                mend="image_size",
            )

    def stack(self, images):
        """The images as `(N, H, W, C)`, grey only if every image read was grey."""
        channels = 1 if self.grey else 3
        stacked = np.empty((len(images), *self.first[1], channels), np.uint8)
        for i, (_, image) in enumerate(images):
            stacked[i] = image
        return stacked
