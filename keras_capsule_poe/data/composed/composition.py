"""What a composition of images is: a seeded, pure function of images and their labels."""

import abc

import numpy as np


class Composition(abc.ABC):
    """Composes images out of others, by randomness that is handed in.

    What is random is drawn for all images of an epoch at once, and little; what is large is
    composed from it a batch at a time, the same however the epoch is cut into batches. Calling
    it does both: `composition(images, labels, rng)` is a batch, a dict of arrays.

    Attributes:
        needs_classes: bool, whether it needs labels of two classes.
    """

    needs_classes = False

    @abc.abstractmethod
    def shape(self, image_shape):
        """`(H', W', C)` of what is composed of images `(H, W, C)`."""

    @abc.abstractmethod
    def draw(self, n, labels, rng):
        """What is random about `n` images.

        Args:
            n: int.
            labels: int64 array (n,), or None.
            rng: `np.random.Generator`.

        Returns:
            dict of arrays (n, ...).
        """

    @abc.abstractmethod
    def compose(self, images, labels, index, drawn):
        """The composed images number `index`.

        Args:
            images: uint8 array (n, H, W, C), all there are to compose of.
            labels: int64 array (n,), or None.
            index: int64 array (B,).
            drawn: What `draw` drew.

        Returns:
            dict of arrays (B, ...): `images` (B, H', W', C) uint8, `labels` int64 where there are
            any, and whatever else belongs to an image.
        """

    def __call__(self, images, labels, rng):
        """All of `images` composed: a dict of arrays, see `compose`."""
        drawn = self.draw(len(images), labels, rng)
        return self.compose(images, labels, np.arange(len(images)), drawn)


def one_label(labels, index):
    """The dict of the labels of images `index`, empty where there are none.

    Examples:

    >>> one_label(None, np.array([0]))
    {}
    """
    return {} if labels is None else {"labels": labels[index]}
