"""Training sets whose images are composed anew every epoch."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable

import numpy as np

from keras_capsule_poe.data.composed.composition import Composition
from keras_capsule_poe.data.image_set import ImageSet
from keras_capsule_poe.data.ordering import generator
from keras_capsule_poe.errors import DataError

_COMPOSING = 1
_CHUNK = 256


@dataclasses.dataclass(frozen=True, eq=False)
class ComposedSet:
    """Images composed anew every epoch, as many as the base has.

    Training calls `epoch`. For code that expects an `ImageSet`, the attributes `images`, `labels`
    and `extras` are those of `fixed()`, composed at first use.

    Attributes:
        base: `ImageSet`, the originals.
        composition: `Composition`, for example `Overlapping()`.
        name: str, describes the source.

    Raises:
        DataError: If the composition needs images of two classes and there are none.

    Examples:

    >>> from keras_capsule_poe.data import load_images
    >>> from keras_capsule_poe.data.composed.pairs import Overlapping
    >>> pairs = ComposedSet(load_images("digits", limit=100).train, Overlapping())
    >>> pairs.image_shape, pairs.labels.shape
    ((36, 36, 1), (100, 2))
    >>> rows = pairs.epoch(seed=0, epoch=3)(np.arange(8))
    >>> rows["targets"].shape
    (8, 2, 36, 36, 1)
    """

    base: ImageSet
    composition: Composition
    name: str = "composed"

    def __post_init__(self):
        if not self.composition.needs_classes:
            return
        labels = self.base.labels
        classes = 0 if labels is None or labels.ndim > 1 else len(np.unique(labels))
        if classes < 2:
            raise DataError(
                f"{self.name} needs images of at least 2 classes, one label an image. "
                f"Received: {len(self.base)} images of {classes} classes."
            )

    def __len__(self):
        return len(self.base)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape (H, W, C) of one composed image."""
        return self.composition.shape(self.base.image_shape)

    @property
    def class_names(self):
        """Tuple of str, or `None`."""
        return self.base.class_names

    @property
    def nbytes(self):
        """Memory used by the originals in bytes."""
        return self.base.nbytes

    @functools.cached_property
    def fingerprint(self):
        """Hash of the composition and the originals' pixels."""
        words = f"{self.composition!r} {self.base.fingerprint}"
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    @property
    def label_fingerprint(self):
        """Hash of the originals' labels, or `None`, see `ImageSet`."""
        return self.base.label_fingerprint

    def epoch(self, seed: int, epoch: int) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        """Return the images of an epoch.

        Args:
            seed: non-negative int.
            epoch: non-negative int.

        Returns:
            Function of an int64 array (B,) of image indices. It returns a dict of arrays (B, ...):
            `images`, `labels` if known, and extras. An image does not depend on the other indices.
        """
        images, labels = self.base.images, self.base.labels
        drawn = self.composition.draw(len(self), labels, generator(seed, epoch, 0, _COMPOSING))
        return functools.partial(self.composition.compose, images, labels, drawn=drawn)

    def fixed(self, seed: int = 0, copies: int = 1, extras: bool = True) -> ImageSet:
        """Compose the first `copies` epochs and join them.

        Args:
            seed: non-negative int.
            copies: positive int.
            extras: bool; if False, only images and labels are kept.

        Returns:
            `ImageSet` of `copies * len(self)` images.
        """
        n, whole = len(self), {}
        for epoch in range(copies):
            rows = self.epoch(seed, epoch)
            for start in range(0, n, _CHUNK):
                part = rows(np.arange(start, min(start + _CHUNK, n)))
                for name in part if extras else {"images", "labels"} & part.keys():
                    array = part[name]
                    if name not in whole:
                        whole[name] = np.empty((copies * n, *array.shape[1:]), array.dtype)
                    first = epoch * n + start
                    whole[name][first : first + len(array)] = array
        images, labels = whole.pop("images"), whole.pop("labels", None)
        return ImageSet(images, labels, self.class_names, self.name, whole)

    @functools.cached_property
    def _fixed(self):
        return self.fixed(extras=False)

    @property
    def images(self):
        """uint8 array (N, H, W, C) of `fixed()`."""
        return self._fixed.images

    @property
    def labels(self):
        """int64 array (N,) or (N, K) of `fixed()`, or `None`."""
        return self._fixed.labels

    @property
    def extras(self):
        """Dict of the extra arrays of `fixed()`."""
        return self.fixed().extras

    def head(self, n):
        """Return the first `n` images of `fixed()` as an `ImageSet`."""
        return self.fixed().head(n)

    def split(self, n):
        """Compose sets of the first `n` originals and, as a fixed `ImageSet`, of the others."""
        first, rest = self.base.split(n)
        return dataclasses.replace(self, base=first), dataclasses.replace(self, base=rest).fixed()
