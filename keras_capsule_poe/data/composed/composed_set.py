"""Images to train on that are composed anew each epoch, held as the images they are made of."""

import dataclasses
import functools
import hashlib

import numpy as np

from keras_capsule_poe.data.composed.composition import Composition
from keras_capsule_poe.data.image_set import ImageSet
from keras_capsule_poe.data.ordering import generator
from keras_capsule_poe.errors import DataError

_COMPOSING = 1
_CHUNK = 256


@dataclasses.dataclass(frozen=True, eq=False)
class ComposedSet:
    """As many images as it is made of, composed anew for each epoch; otherwise as an `ImageSet`.

    `images`, `labels` and `extras` are those of `fixed()`, composed when first asked for, so
    that whatever takes an `ImageSet` takes this one, too. `epoch` is what training asks.

    Attributes:
        base: `ImageSet` to compose of.
        composition: `Composition`.
        name: where the images come from, for people to read.

    Raises:
        DataError: if the composition needs images of two classes and there are none.

    Examples:

    >>> from keras_capsule_poe.data import load_images
    >>> from keras_capsule_poe.data.composed import Overlapping
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
    def image_shape(self):
        """`(H, W, C)` of one composed image."""
        return self.composition.shape(self.base.image_shape)

    @property
    def class_names(self):
        """Tuple of str, or `None`."""
        return self.base.class_names

    @property
    def nbytes(self):
        """Bytes that the images take that it is composed of."""
        return self.base.nbytes

    @functools.cached_property
    def fingerprint(self):
        """16 hex digits that change with the composition and with any pixel."""
        words = f"{self.composition!r} {self.base.fingerprint}"
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    @property
    def label_fingerprint(self):
        """See `ImageSet.label_fingerprint`: that of the images that it is composed of."""
        return self.base.label_fingerprint

    def epoch(self, seed, epoch):
        """The images of an epoch.

        Args:
            seed, epoch: integers of at least 0.

        Returns:
            Function of an int64 array (B,), the numbers of images, to a dict of arrays (B, ...):
            `images`, `labels` and extras. Image i of an epoch is always the same, whatever is
            asked with it.
        """
        images, labels = self.base.images, self.base.labels
        drawn = self.composition.draw(len(self), labels, generator(seed, epoch, 0, _COMPOSING))
        return functools.partial(self.composition.compose, images, labels, drawn=drawn)

    def fixed(self, seed=0, copies=1, extras=True):
        """An `ImageSet` of `copies` epochs, one after another, from the first on.

        Args:
            seed: integer of at least 0.
            copies: int, at least 1.
            extras: whether to keep what belongs to an image besides its labels.
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
        """`(N, H, W, C)` uint8 array, see the class."""
        return self._fixed.images

    @property
    def labels(self):
        """`(N,)` or `(N, K)` int64 array, or `None`, see the class."""
        return self._fixed.labels

    @property
    def extras(self):
        """What belongs to the images besides labels, a dict of arrays, see the class."""
        return self.fixed().extras

    def head(self, n):
        """The first `n` images of `fixed()`, as an `ImageSet`."""
        return self.fixed().head(n)

    def split(self, n):
        """Two sets that share no image: composed of the first `n`, and, fixed, of the others."""
        first, rest = self.base.split(n)
        return dataclasses.replace(self, base=first), dataclasses.replace(self, base=rest).fixed()
