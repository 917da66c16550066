"""Images held in memory, and the training and test pair of them."""

import dataclasses
import functools
import hashlib

import numpy as np

from keras_capsule_poe.errors import DataError


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size, held once in memory.

    Attributes:
        images: `(N, H, W, C)` uint8 array in [0, 255], C is 1 (grey) or 3 (RGB).
        labels: `(N,)` int64 array, or `None`.
        class_names: tuple of str, `class_names[label]` names a label, or `None`.
        name: where the images come from, for people to read.

    Raises:
        DataError: if `images` or `labels` have another shape or dtype.

    Examples:

    >>> images = ImageSet(np.zeros((3, 28, 28, 1), np.uint8), name="zeros")
    >>> len(images), images.image_shape
    (3, (28, 28, 1))
    """

    images: np.ndarray
    labels: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    name: str = "images"

    def __post_init__(self):
        shape, dtype = self.images.shape, self.images.dtype
        if dtype != np.uint8 or len(shape) != 4 or shape[-1] not in (1, 3):
            raise DataError(
                "`images` must be a uint8 array of shape (N, H, W, C) with C 1 or 3. "
                f"Received: shape {shape} and dtype {dtype}."
            )
        if self.labels is not None and (
            self.labels.shape != shape[:1] or self.labels.dtype != np.int64
        ):
            raise DataError(
                f"`labels` must be an int64 array of shape ({shape[0]},), one label an image. "
                f"Received: shape {self.labels.shape} and dtype {self.labels.dtype}."
            )

    def __len__(self):
        return len(self.images)

    @property
    def image_shape(self):
        """`(H, W, C)` of one image."""
        return self.images.shape[1:]

    @functools.cached_property
    def fingerprint(self):
        """16 hex digits that change with the shape or any pixel: a prefix of a SHA-256 sum."""
        digest = hashlib.sha256(repr(self.images.shape).encode())
        digest.update(np.ascontiguousarray(self.images))
        return digest.hexdigest()[:16]

    def head(self, n):
        """The first `n` images, or all where there are fewer. Shares memory with this set."""
        labels = None if self.labels is None else self.labels[:n]
        return ImageSet(self.images[:n], labels, self.class_names, self.name)


@dataclasses.dataclass(frozen=True, eq=False)
class ImageData:
    """What `load_images` returns: images to train on and images to test with.

    Attributes:
        train: `ImageSet`.
        test: `ImageSet` with images of the same shape.
        skipped: tuple of str, paths of the image files that could not be read and were left out.

    Raises:
        DataError: if the images of the two sets differ in shape.

    Examples:

    >>> images = ImageSet(np.zeros((3, 28, 28, 1), np.uint8))
    >>> ImageData(images, images.head(1), skipped=("a.png",)).summary()
    '3 training and 1 test images of 28x28x1, 1 unreadable file left out'
    """

    train: ImageSet
    test: ImageSet
    skipped: tuple[str, ...] = ()

    def __post_init__(self):
        if self.train.image_shape != self.test.image_shape:
            raise DataError(
                "training and test images must have the same shape. "
                f"Received: {self.train.image_shape} and {self.test.image_shape}.",
                mend="image_size",
            )

    def summary(self):
        """How many images there are, of which shape, and how many were left out: one line."""
        shape = "x".join(map(str, self.image_shape))
        line = f"{len(self.train)} training and {len(self.test)} test images of {shape}"
        left_out = len(self.skipped)
        files = "files" if left_out > 1 else "file"
        return f"{line}, {left_out} unreadable {files} left out" if left_out else line

    @property
    def name(self):
        """Where the images come from."""
        return self.train.name

    @property
    def image_shape(self):
        """`(H, W, C)` of one image."""
        return self.train.image_shape
