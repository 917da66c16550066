"""Images shifted by whole pixels on a larger canvas."""

import dataclasses

from keras_capsule_poe.data.composed.composition import Composition, one_label
from keras_capsule_poe.data.warping import place


@dataclasses.dataclass(frozen=True)
class Translated(Composition):
    """Each image on a dark canvas, shifted uniformly (Sabour et al., 2017, Section 5.2)."""

    # Pixels: canvas margin on each side, and largest shift along each axis.
    pad: int = 6
    shift: int = 6

    def shape(self, image_shape):
        height, width, channels = image_shape
        return height + 2 * self.pad, width + 2 * self.pad, channels

    def draw(self, n, labels, rng):
        return {"shifts": rng.integers(-self.shift, self.shift + 1, (n, 2))}

    def compose(self, images, labels, index, drawn):
        """Return `images`, `labels` and `shifts` (B, 2) int64, down and to the right."""
        shifts = drawn["shifts"][index]
        size = self.shape(images.shape[1:])[:2]
        placed = place(images[index], size, *(shifts + self.pad).T)
        return {"images": placed, **one_label(labels, index), "shifts": shifts}
