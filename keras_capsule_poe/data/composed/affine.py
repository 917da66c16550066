"""Images under random affine maps on a larger canvas, like affNIST."""

import dataclasses

import numpy as np

from keras_capsule_poe.data.composed.composition import Composition, one_label
from keras_capsule_poe.data.warping import affine_matrix, warp

# Columns of `affine`: degrees counter-clockwise, columns per row up, two factors, pixels.
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
    """Random affine map of each image on a dark canvas that keeps all ink, like affNIST."""

    # Uniform ranges like affNIST's (https://www.cs.toronto.edu/~tijmen/affNIST/) as far as known:
    # pixels per side, degrees, columns per row, and distance of both factors from 1.
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
            # Position within `translation_range`.
            "place": rng.random((n, 2)),
        }

    def compose(self, images, labels, index, drawn):
        """Return `images`, `labels` and `affine` (B, 6) float32 in the order of `NUMBERS`."""
        images = images[index]
        rotation, shear, scale = (drawn[name][index] for name in ("rotation", "shear", "scale"))
        matrices = affine_matrix(rotation, shear, scale)
        size = self.shape(images.shape[1:])[:2]
        low, high = translation_range(images, matrices, size)
        # Ink larger than the canvas has low > high; it is centred and cut off.
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
    """Return the least and largest translations (B, 2) in pixels that keep all ink."""
    ink = images.any(axis=-1)
    # An image without ink counts as one pixel in the middle.
    ink |= ~ink.any(axis=(1, 2), keepdims=True) & _middle(ink.shape[1:])
    down, right = (np.arange(length) - (length - 1) / 2 for length in ink.shape[1:])
    lows, highs = [], []
    for axis in range(2):
        row, column = matrices[:, axis, 0, None, None], matrices[:, axis, 1, None, None]
        points = row * down[:, None] + column * right
        least = np.where(ink, points, np.inf).min(axis=(1, 2))
        most = np.where(ink, points, -np.inf).max(axis=(1, 2))
        # Bilinear interpolation spreads a pixel by one pixel in each direction before the map.
        reach = np.abs(matrices[:, axis]).sum(axis=-1)
        half = (size[axis] + 1) / 2
        lows.append(reach - half - least)
        highs.append(half - reach - most)
    return np.stack(lows, axis=1), np.stack(highs, axis=1)


def _middle(shape):
    middle = np.zeros(shape, bool)
    middle[shape[0] // 2, shape[1] // 2] = True
    return middle
