"""Images turned, sheared, scaled and moved on a larger canvas, as those of affNIST."""

import dataclasses

import numpy as np

from keras_capsule_poe.data.composed.composition import Composition, one_label
from keras_capsule_poe.data.warping import affine_matrix, warp

# The six numbers of an image, in the order of the array `affine`.
NUMBERS = (
    "rotation",
    "shear",
    "vertical_scale",
    "horizontal_scale",
    "vertical_translation",
    "horizontal_translation",
)


@dataclasses.dataclass(frozen=True)
class Affine(Composition):
    """Each image under a random affine map on a dark canvas, so that no ink leaves it.

    It is affNIST-like, not affNIST: ranges and rules are that data set's as far as they are
    known, the images are drawn anew. Bilinear, rounded to whole grey levels.

    Args:
        pad: int, dark pixels on each side of an image that lies in the middle.
        rotation: float, degrees at most, to either side.
        shear: float, columns a row at most, to either side.
        scale: float, how far both scales may be from 1.

    All are uniform in their ranges, and the translation among those that keep all ink on the
    canvas. Ink that is too large for the canvas comes to its middle and is cut off.

    Examples:

    >>> affine = Affine()
    >>> digits = np.zeros((2, 28, 28, 1), np.uint8)
    >>> digits[:, 10:18, 12:16] = 255
    >>> batch = affine(digits, np.array([1, 1]), np.random.default_rng(0))
    >>> {name: array.shape for name, array in batch.items()}
    {'images': (2, 40, 40, 1), 'labels': (2,), 'affine': (2, 6)}

    Reference:

    - [affNIST](https://www.cs.toronto.edu/~tijmen/affNIST/)
    """

    pad: int = 6
    rotation: float = 20.0
    shear: float = 0.2
    scale: float = 0.2

    def shape(self, image_shape):
        height, width, channels = image_shape
        return height + 2 * self.pad, width + 2 * self.pad, channels

    def draw(self, n, labels, rng):
        return {
            "rotation": rng.uniform(-self.rotation, self.rotation, n),
            "shear": rng.uniform(-self.shear, self.shear, n),
            "scale": rng.uniform(1 - self.scale, 1 + self.scale, (n, 2)),
            # From one edge of the canvas to the other, as far as the ink can go.
            "place": rng.random((n, 2)),
        }

    def compose(self, images, labels, index, drawn):
        """`images`, `labels`, and `affine` (B, 6) float32, in the order of `NUMBERS`.

        Degrees counter-clockwise, columns to the right a row up, two factors, and pixels down
        and to the right; `affine_matrix` and `warp` say how they apply.
        """
        images = images[index]
        rotation, shear, scale = (drawn[name][index] for name in ("rotation", "shear", "scale"))
        matrices = affine_matrix(rotation, shear, scale)
        size = self.shape(images.shape[1:])[:2]
        low, high = translation_range(images, matrices, size)
        translations = np.where(
            low < high, low + drawn["place"][index] * (high - low), (low + high) / 2
        )
        warped = warp(images, matrices, translations, size)
        columns = rotation[:, None], shear[:, None], scale, translations
        return {
            "images": np.rint(warped).astype(np.uint8),
            **one_label(labels, index),
            "affine": np.concatenate(columns, axis=1).astype(np.float32),
        }


def translation_range(images, matrices, size):
    """The least and largest translations that keep all ink on the canvas.

    Args:
        images: Array (B, H, W, C).
        matrices: Array (B, 2, 2) of (row, column).
        size: Pair (H', W') of the canvas.

    Returns:
        Two float arrays (B, 2), down and to the right, in pixels. Where the ink is larger than
        the canvas the first is above the second; without ink they are as for a single pixel.

    Examples:

    >>> dot = np.zeros((1, 3, 3, 1), np.uint8)
    >>> dot[0, 1, 1] = 255
    >>> low, high = translation_range(dot, np.eye(2)[np.newaxis], (5, 5))
    >>> low.tolist(), high.tolist()
    ([[-2.0, -2.0]], [[2.0, 2.0]])
    """
    ink = images.any(axis=-1)
    ink |= ~ink.any(axis=(1, 2), keepdims=True) & _middle(ink.shape[1:])
    down, right = (np.arange(length) - (length - 1) / 2 for length in ink.shape[1:])
    lows, highs = [], []
    for axis in range(2):
        row, column = matrices[:, axis, 0, None, None], matrices[:, axis, 1, None, None]
        points = row * down[:, None] + column * right
        least = np.where(ink, points, np.inf).min(axis=(1, 2))
        most = np.where(ink, points, -np.inf).max(axis=(1, 2))
        # A pixel's bilinear tent reaches one pixel in each direction before it is mapped.
        reach = np.abs(matrices[:, axis]).sum(axis=-1)
        half = (size[axis] + 1) / 2
        lows.append(reach - half - least)
        highs.append(half - reach - most)
    return np.stack(lows, axis=1), np.stack(highs, axis=1)


def _middle(shape):
    """A boolean array whose middle pixel is True."""
    middle = np.zeros(shape, bool)
    middle[shape[0] // 2, shape[1] // 2] = True
    return middle
