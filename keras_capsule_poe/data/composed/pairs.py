"""Two images in one, of different classes: overlapping, as MultiMNIST, or side by side."""

import dataclasses

import numpy as np

from keras_capsule_poe.data.composed.composition import Composition
from keras_capsule_poe.data.composed.translated import Translated


def draw_partners(labels, rng):
    """For each image another one of a different class, all of these as likely.

    Args:
        labels: int64 array (N,), of two classes or more.
        rng: `np.random.Generator`.

    Returns:
        int64 array (N,), indices.

    Examples:

    >>> draw_partners(np.array([0, 0, 1]), np.random.default_rng(0)).tolist()[:2]
    [2, 2]
    """
    order = np.argsort(labels, kind="stable")
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    # Images in order of their classes, one's own class left out.
    chosen = rng.integers(0, len(labels) - counts[classes])
    chosen += (chosen >= firsts[classes]) * counts[classes]
    return order[chosen]


@dataclasses.dataclass(frozen=True)
class Overlapping(Composition):
    """Two images of different classes on one canvas, each moved by whole pixels: MultiMNIST.

    Pixels add up, to 255 at most. Unlike the paper, whose 1000 pairs of an image share one
    shift of it, both shifts are drawn anew for each pair.

    Args:
        pad: int, dark pixels on each side of an image that lies in the middle.
        shift: int, pixels that each moves at most, down or up and to either side. Above `pad`,
            edges of images may be cut off (the paper's code has 6 with a pad of 4, its text 4).

    Examples:

    >>> digits = np.full((2, 28, 28, 1), 200, np.uint8)
    >>> batch = Overlapping()(digits, np.array([3, 8]), np.random.default_rng(0))
    >>> {name: array.shape for name, array in batch.items()}
    {'images': (2, 36, 36, 1), 'labels': (2, 2), 'targets': (2, 2, 36, 36, 1)}
    >>> batch["labels"].tolist(), int(batch["images"].max())
    ([[3, 8], [8, 3]], 255)

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), section 6
    """

    pad: int = 4
    shift: int = 4
    needs_classes = True

    def shape(self, image_shape):
        return self._moved.shape(image_shape)

    @property
    def _moved(self):
        return Translated(self.pad, self.shift)

    def draw(self, n, labels, rng):
        one, other = (self._moved.draw(n, labels, rng)["shifts"] for _ in range(2))
        return {"partners": draw_partners(labels, rng), "shifts": one, "partner_shifts": other}

    def compose(self, images, labels, index, drawn):
        """`images`, `labels` (B, 2), and `targets` (B, 2, H', W', C) uint8, each image alone."""
        partners = drawn["partners"][index]

        def alone(rows, shifts):
            shifts = {"shifts": shifts[index]}
            chosen = np.arange(len(rows))
            return self._moved.compose(images[rows], None, chosen, shifts)["images"]

        one = alone(index, drawn["shifts"])
        other = alone(partners, drawn["partner_shifts"])
        # In uint8 a sum would overflow, and min(a + b, 255) is a + min(b, 255 - a).
        return {
            "images": one + np.minimum(other, 255 - one),
            "labels": np.stack([labels[index], labels[partners]], axis=1),
            "targets": np.stack([one, other], axis=1),
        }


@dataclasses.dataclass(frozen=True)
class SideBySide(Composition):
    """Two images of different classes, one left and one right, for what takes any image size.

    Examples:

    >>> digits = np.zeros((2, 28, 28, 1), np.uint8)
    >>> batch = SideBySide()(digits, np.array([3, 8]), np.random.default_rng(0))
    >>> batch["images"].shape, batch["labels"].tolist()
    ((2, 28, 56, 1), [[3, 8], [8, 3]])
    """

    needs_classes = True

    def shape(self, image_shape):
        height, width, channels = image_shape
        return height, 2 * width, channels

    def draw(self, n, labels, rng):
        return {"partners": draw_partners(labels, rng)}

    def compose(self, images, labels, index, drawn):
        """`images`, and `labels` (B, 2) from left to right."""
        both = np.stack([index, drawn["partners"][index]], axis=1)
        return {
            "images": np.concatenate([images[both[:, 0]], images[both[:, 1]]], axis=2),
            "labels": labels[both],
        }
