"""Pairs of images of different classes in one image."""

import dataclasses

import numpy as np

from keras_capsule_poe.data.composed.composition import Composition
from keras_capsule_poe.data.composed.translated import Translated


def draw_partners(labels, rng):
    """Draw indices (N,) of a partner for each image, uniform over the other classes."""
    order = np.argsort(labels, kind="stable")
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    # Position in the order of the classes, without the image's own class.
    chosen = rng.integers(0, len(labels) - counts[classes])
    chosen += (chosen >= firsts[classes]) * counts[classes]
    return order[chosen]


@dataclasses.dataclass(frozen=True)
class Overlapping(Composition):
    """Two images of different classes, shifted and added with clipping at 255: MultiMNIST."""

    # Sabour et al. (2017), Section 6. Their code shifts by 6 at a pad of 4, their text by 4.
    # They keep one shift for all pairs of an image; here each pair draws both shifts.
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
        """Return `images`, `labels` (B, 2) and `targets` (B, 2, H', W', C), each image alone."""
        partners = drawn["partners"][index]

        def alone(rows, shifts):
            shifts = {"shifts": shifts[index]}
            chosen = np.arange(len(rows))
            return self._moved.compose(images[rows], None, chosen, shifts)["images"]

        one = alone(index, drawn["shifts"])
        other = alone(partners, drawn["partner_shifts"])
        # min(a + b, 255) without uint8 overflow.
        return {
            "images": one + np.minimum(other, 255 - one),
            "labels": np.stack([labels[index], labels[partners]], axis=1),
            "targets": np.stack([one, other], axis=1),
        }


@dataclasses.dataclass(frozen=True)
class SideBySide(Composition):
    """Two images of different classes, left and right."""

    needs_classes = True

    def shape(self, image_shape):
        height, width, channels = image_shape
        return height, 2 * width, channels

    def draw(self, n, labels, rng):
        return {"partners": draw_partners(labels, rng)}

    def compose(self, images, labels, index, drawn):
        """Return `images` and `labels` (B, 2), from left to right."""
        both = np.stack([index, drawn["partners"][index]], axis=1)
        return {
            "images": np.concatenate([images[both[:, 0]], images[both[:, 1]]], axis=2),
            "labels": labels[both],
        }
