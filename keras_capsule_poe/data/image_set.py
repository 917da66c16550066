"""Image sets, in memory or on disk."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_capsule_poe.data.groups import check_apart, draw_groups
from keras_capsule_poe.data.mapping import RowView, chunks, view
from keras_capsule_poe.data.preparation import Preparation
from keras_capsule_poe.data.streams import in_blocks, mixed, single_classes
from keras_capsule_poe.errors import DataError, listing
from keras_capsule_poe.io.text import NAME, printable

# Largest default size; enough for a stable mean.
HELD_OUT = 1000
# Larger numbers are no labels of classes.
_CLASSES = 2**20
_CHUNK = 4096
# Classes whose counts are shown.
_NAMED = 20
# smallNORB labels of the training views: azimuths 300 to 40 degrees, or the 3 lowest elevations.
FAMILIAR = {
    "azimuth": ("label_azimuth", (15, 16, 17, 0, 1, 2)),
    "elevation": ("label_elevation", (0, 1, 2)),
}


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size, with optional labels and further data per image.

    Attributes:
        images: uint8 array (N, H, W, C) in [0, 255]. C is 1 (grey), 2 (stereo pair: left, right)
            or 3 (RGB). A memory-mapped array or a `RowView` stays on disk.
        labels: int64 array (N,), or (N, K) for K objects per image, or `None`.
        class_names: tuple of str, the name of each label, or `None`.
        name: str, describes the source.
        extras: dict of name to array (N, ...), further data per image.
        unlabelled: str, path of an image without a class, or `None`.
        label_file: str, path of a file that may hold the labels of images without any, or `None`.

    Raises:
        DataError: If an array has another shape or dtype.

    Examples:

    >>> images = ImageSet(np.zeros((3, 28, 28, 1), np.uint8), name="zeros")
    >>> images
    ImageSet('zeros': 3 images of 28x28x1)
    >>> len(images), images.image_shape
    (3, (28, 28, 1))
    """

    images: np.ndarray
    labels: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    name: str = "images"
    extras: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    unlabelled: str | None = None
    label_file: str | None = None

    def __post_init__(self):
        shape, dtype = self.images.shape, self.images.dtype
        if dtype != np.uint8 or len(shape) != 4 or shape[-1] not in (1, 2, 3):
            raise DataError(
                "`images` must be a uint8 array of shape (N, H, W, C) with C 1, 2 or 3. "
                f"Received: shape {shape} and dtype {dtype}."
            )
        labels = self.labels
        if labels is not None and (
            labels.ndim not in (1, 2) or len(labels) != shape[0] or labels.dtype != np.int64
        ):
            raise DataError(
                f"`labels` must be an int64 array of shape ({shape[0]},), one label an image, or "
                f"({shape[0]}, K), K of them. "
                f"Received: shape {labels.shape} and dtype {labels.dtype}."
            )
        most = len(self.class_names or ()) or _CLASSES
        if labels is not None and labels.max(initial=0) >= most:
            raise DataError(
                "`labels` must number the classes from 0 on, below "
                f"{most:,}{' names' if self.class_names else ''}. "
                f"Received: labels up to {labels.max()}."
            )
        for name, array in self.extras.items():
            if name in ("images", "labels") or len(array) != shape[0]:
                raise DataError(
                    f"`extras` must be arrays of {shape[0]} rows, none named images or labels. "
                    f"Received: {name!r} of shape {array.shape}."
                )

    def __len__(self):
        return len(self.images)

    def __repr__(self):
        shape = "x".join(map(str, self.image_shape))
        named = f" with labels of {len(self.class_names)} classes" if self.class_names else ""
        labels = named or ("" if self.labels is None else " with labels")
        return f"ImageSet({self.name!r}: {len(self)} images of {shape}{labels})"

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape (H, W, C) of one image."""
        return self.images.shape[1:]

    @functools.cached_property
    def fingerprint(self):
        """Hash of the shape and the pixels: a truncated SHA-256 sum in hexadecimal."""
        digest = hashlib.sha256(repr(self.images.shape).encode())
        for part in chunks(self.images, _CHUNK):
            digest.update(np.ascontiguousarray(part))
        return digest.hexdigest()[:16]

    @functools.cached_property
    def label_fingerprint(self):
        """Hash of the labels, or `None` without labels."""
        if self.labels is None:
            return None
        digest = hashlib.sha256(self.labels.astype("int64").tobytes())
        if self.labels.ndim > 1:
            # Otherwise K labels an image would have the hash of N K images with one each.
            digest.update(repr(self.labels.shape).encode())
        return digest.hexdigest()[:16]

    @property
    def nbytes(self):
        """Memory used by the images in bytes; zero for images on disk."""
        rows = self.images.rows if isinstance(self.images, RowView) else self.images
        return 0 if isinstance(rows, np.memmap) else rows.nbytes

    def take(self, index: Any) -> "ImageSet":
        """Return the images at `index`.

        Args:
            index: slice, or integer or boolean array. A slice shares memory with this set.

        Returns:
            `ImageSet`. Images on disk stay on disk.
        """
        images = view(self.images, index)
        labels = None if self.labels is None else self.labels[index]
        extras = {name: array[index] for name, array in self.extras.items()}
        return dataclasses.replace(self, images=images, labels=labels, extras=extras)

    def reordered(self, order: np.ndarray) -> "ImageSet":
        """Return the images in an order, an integer array, sharing memory with this set."""
        images = self.images
        is_view = isinstance(images, RowView)
        rows: Any = images if is_view else RowView(images, np.arange(len(self)))
        return dataclasses.replace(self, images=rows).take(order)

    def head(self, n: int) -> "ImageSet":
        """Return the first `n` images, or all if there are fewer, sharing memory."""
        return self.take(slice(n))

    def tail(self, n: int) -> "ImageSet":
        """Return all images after the first `n`, sharing memory."""
        return self.take(slice(n, None))

    def split(self, n: int) -> tuple["ImageSet", "ImageSet"]:
        """Return `head(n)` and `tail(n)`."""
        return self.head(n), self.tail(n)

    def epoch(self, seed: int, epoch: int) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        """Return the images of an epoch; they do not depend on the epoch, unlike a `ComposedSet`'s.

        Args:
            seed: int, ignored.
            epoch: int, ignored.

        Returns:
            Function of an int64 array (B,) of image indices. It returns a dict of arrays (B, ...):
            `images`, `labels` if known, and extras.
        """
        arrays = {"images": self.images, "labels": self.labels, **self.extras}
        known = {name: array for name, array in arrays.items() if array is not None}
        return lambda index: {name: array[index] for name, array in known.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class ImageData:
    """Training, test and optional held-out images.

    Use the held-out images to monitor training and to choose settings; `hold_out` creates them.

    Attributes:
        train: `ImageSet`, or `ComposedSet` whose images change every epoch.
        test: `ImageSet` with images of the same shape.
        skipped: tuple of str, paths of unreadable image files that were skipped.
        held_out: `ImageSet` of images removed from the training images, or `None`.
        notes: tuple of str, lines on how the data were read, such as files that were left out.
        preparation: `Preparation` of image files, or `None`.

    Raises:
        DataError: If training, held-out and test images differ in shape.

    Examples:

    >>> images = ImageSet(np.zeros((3, 28, 28, 1), np.uint8))
    >>> ImageData(images, images.head(1), skipped=("a.png",)).summary()
    '3 training and 1 test images of 28x28x1, 1 unreadable file left out'
    """

    train: ImageSet
    test: ImageSet
    skipped: tuple[str, ...] = ()
    held_out: ImageSet | None = None
    notes: tuple[str, ...] = ()
    preparation: Preparation | None = None

    def __post_init__(self):
        if self.train.image_shape != self.test.image_shape:
            raise DataError(
                "training and test images must have the same shape. "
                f"Received: {self.train.image_shape} and {self.test.image_shape}.",
                hint="image_size",
            )
        if self.held_out is not None and self.held_out.image_shape != self.train.image_shape:
            raise DataError(
                "`held_out` must have images of the shape of the training images, "
                f"{self.train.image_shape}. Received: {self.held_out.image_shape}."
            )
        check_apart(self._groups)

    @property
    def _parts(self):
        """Dict of the parts by name. Held-out images that are also the test images come once."""
        parts = {"training": self.train, "held-out": self.held_out, "test": self.test}
        if self.test is self.held_out:
            del parts["test"]
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def _groups(self):
        """Dict of the groups (N,) of the parts that have them."""
        sets = {name: part for name, part in self._parts.items() if isinstance(part, ImageSet)}
        return {
            name: part.extras["groups"] for name, part in sets.items() if "groups" in part.extras
        }

    def __repr__(self):
        return f"ImageData({self.name!r}: {self.summary()})"

    def summary(self) -> str:
        """Return one line with the image counts, the image shape and the skipped files."""
        shape = "x".join(map(str, self.image_shape))
        *counts, last = [f"{len(part)} {name}" for name, part in self._parts.items()]
        line = f"{', '.join(counts)} and {last} images of {shape}"
        left_out = len(self.skipped)
        files = "files" if left_out > 1 else "file"
        return f"{line}, {left_out} unreadable {files} left out" if left_out else line

    def class_counts(self, least: float = 1.0) -> str | None:
        """Return one line with the number of images of each class, or `None` without names.

        Args:
            least: float. Also `None` if training and test images have all classes, and the largest
                class of the training is less than so many times as large as the smallest one.

        Examples:

        >>> images = ImageSet(np.zeros((3, 8, 8, 1), np.uint8), np.array([0, 1, 1]), ("cat", "dog"))
        >>> ImageData(images, images.head(1)).class_counts()
        'training/test images of 2 classes: cat 1/1, dog 2/0'
        """
        names = self.train.class_names
        parts = {name: part.labels for name, part in self._parts.items()}
        known = {
            k: each for k, each in parts.items() if each is not None and each.min(initial=0) >= 0
        }
        if not names or "training" not in known:
            return None
        counts = np.transpose(
            [np.bincount(each.ravel(), minlength=len(names)) for each in known.values()]
        )
        if counts[:, [0, -1]].min() and counts[:, 0].max() < least * counts[:, 0].min():
            return None
        pairs = zip(names, counts)
        shown = [f"{printable(name, NAME)} {'/'.join(map(str, n))}" for name, n in pairs]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        classes = "class" if len(names) == 1 else "classes"
        return (
            f"{'/'.join(known)} images of {len(names)} {classes}: {', '.join(shown[:_NAMED])}{more}"
        )

    def group_counts(self) -> str | None:
        """Return one line with the number of groups in each part, or `None` without groups."""
        counts = {name: len(np.unique(groups)) for name, groups in self._groups.items()}
        if not counts:
            return None
        return f"groups of {'/'.join(counts)} images: {'/'.join(map(str, counts.values()))}"

    def hold_out(self, n: int | None = None, in_order: bool = False) -> "ImageData":
        """Move training images to `held_out`: the last ones, or some of each class.

        Classes matter if images of one class follow one another. Groups, the extra `groups` (N,) of
        the training images, are held out as a whole.

        Args:
            n: positive int, or `None` for 5% of the images, but at least 1 and at most 1000.
            in_order: bool, always take the last images.

        Returns:
            `ImageData` that shares memory with this one.

        Raises:
            DataError: If `n` is below 1 or no training image would remain.

        Examples:

        >>> images = ImageSet(np.zeros((60, 28, 28, 1), np.uint8))
        >>> ImageData(images, images.head(5)).hold_out().summary()
        '57 training, 3 held-out and 5 test images of 28x28x1'
        """
        every = len(self.train)
        kept = min(max(every // 20, 1), HELD_OUT) if n is None else n
        if not 1 <= kept < every:
            raise DataError(
                "`held_out` must be at least 1 and leave an image to train on. "
                f"Received: held_out={kept} of {every} training images.",
                hint="held_out" if kept >= 1 else None,
            )
        train = self.train
        if isinstance(train, ImageSet) and "groups" in train.extras:
            groups, classes = train.extras["groups"], single_classes(train.labels, every)
            is_held = draw_groups(classes, groups, kept, seed=0, least=3)
            kept = int(np.count_nonzero(is_held))
            train = train.reordered(np.argsort(is_held, kind="stable"))
        elif isinstance(train, ImageSet) and not in_order and in_blocks(train.labels):
            train = train.reordered(mixed(train.labels))
        train, held_out = train.split(every - kept)
        return dataclasses.replace(self, train=train, held_out=held_out)

    @property
    def fingerprints(self):
        """Dict of each set's fingerprint as `NAME`, and of its labels' as `NAME_labels`."""
        sets = {"train": self.train, "held_out": self.held_out, "test": self.test}
        known = {name: images for name, images in sets.items() if images is not None}
        found = {name: images.fingerprint for name, images in known.items()}
        return found | {f"{name}_labels": each.label_fingerprint for name, each in known.items()}

    @property
    def classes(self):
        """Number of classes, or `None` without labels."""
        if self.train.class_names:
            return len(self.train.class_names)
        parts = (self.train, self.held_out, self.test)
        largest = [part.labels.max() for part in parts if part and part.labels is not None]
        return int(max(largest)) + 1 if largest and max(largest) >= 0 else None

    @property
    def name(self):
        """Source of the training images, str."""
        return self.train.name

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape (H, W, C) of one image."""
        return self.train.image_shape


def notes_on(data):
    """Return lines on other images that are training images, and on classes of one image."""
    train, parts = data.train, data._parts
    if not isinstance(train, ImageSet):
        return []
    notes = equal_images(train, {name: part for name, part in parts.items() if part is not train})
    labels = [part.labels for part in parts.values()]
    if train.class_names and all(each is not None and each.ndim == 1 for each in labels):
        counts = np.bincount(np.concatenate(labels), minlength=len(train.class_names))
        single = [train.class_names[number] for number in np.flatnonzero(counts == 1)]
        notes += [f"Classes of one image: {listing(single, 5)}."] if single else []
    return notes


def equal_images(train, parts):
    """Return a line for each of the parts (dict by name) that has images of the training set."""
    notes, known = [], None
    for name, part in parts.items() if isinstance(train, ImageSet) else ():
        known = _row_sums(train.images) if known is None else known
        if count := np.count_nonzero(np.isin(_row_sums(part.images), known)):
            are = (
                "image is also a training image"
                if count == 1
                else "images are training images, too"
            )
            notes.append(f"{count} {name} {are}, pixel by pixel.")
    return notes


def _row_sums(images):
    """Return hashes (N,) of images (N, H, W, C), uint64."""
    sums = [
        hashlib.blake2b(image, digest_size=8).digest()
        for part in chunks(images, _CHUNK)
        for image in np.ascontiguousarray(part)
    ]
    return np.frombuffer(b"".join(sums), np.uint64)


def split_views(data: ImageData, by: str) -> ImageData:
    """Keep only training images from familiar viewpoints, and mark novel ones among test images.

    A third of the viewpoints is familiar. Compare networks on novel viewpoints at equal accuracy
    on familiar ones.

    Args:
        data: `ImageData` whose sets have the extras of smallNORB.
        by: `"azimuth"` or `"elevation"`.

    Returns:
        `ImageData`. Training and held-out images show familiar viewpoints. Test images are
        complete, and their extra `novel` (N,) int64 is 1 for novel viewpoints, else 0.

    Raises:
        DataError: If `by` is unknown, or the data have no such extra or no familiar viewpoint.

    Examples:

    >>> from keras_capsule_poe.data import ImageData, ImageSet
    >>> extras = {"label_azimuth": np.arange(18)}
    >>> views = ImageSet(np.zeros((18, 8, 8, 2), np.uint8), extras=extras)
    >>> split = split_views(ImageData(views, views), by="azimuth")
    >>> len(split.train), split.test.extras["novel"][:4].tolist()
    (6, [0, 0, 0, 1])

    Reference:

    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 5.1
    """
    if by not in FAMILIAR:
        raise DataError(f"views are split by {' or '.join(FAMILIAR)}. Received: by={by!r}.")
    name, labels = FAMILIAR[by]
    for part in (data.train, data.test):
        if name not in part.extras:
            raise DataError(
                f"images must have the extra {name!r}, as 'viewpoints' and 'smallnorb' have. "
                f"Received: extras {listing(part.extras) or 'none'} of {part.name!r}.",
                hint="leave_out:split",
            )

    def familiar(part):
        return part and part.take(np.flatnonzero(np.isin(part.extras[name], labels)))

    train, held_out = familiar(data.train), familiar(data.held_out)
    if not len(train):
        raise DataError(f"no training image is of a familiar {by}. Received: {len(data.train)}.")
    novel = 1 - np.isin(data.test.extras[name], labels).astype(np.int64)
    test = dataclasses.replace(data.test, extras={**data.test.extras, "novel": novel})
    return dataclasses.replace(data, train=train, held_out=held_out, test=test)
