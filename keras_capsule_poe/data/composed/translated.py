"""Images moved by whole pixels on a larger canvas: expanded MNIST of the 2017 paper."""

import dataclasses

from keras_capsule_poe.data.composed.composition import Composition, one_label
from keras_capsule_poe.data.windows import place


@dataclasses.dataclass(frozen=True)
class Translated(Composition):
    """Each image at a random place on a dark canvas, moved by whole pixels and cut off nowhere.

    Args:
        pad: int, dark pixels on each side of an image that lies in the middle.
        shift: int, pixels that it moves at most, down or up and to either side, each
            number of them as likely as any other.

    Examples:

    >>> translated = Translated()
    >>> translated.shape((28, 28, 1))
    (40, 40, 1)
    >>> digits = np.full((2, 28, 28, 1), 255, np.uint8)
    >>> batch = translated(digits, None, np.random.default_rng(0))
    >>> batch["images"].shape, batch["shifts"].tolist()
    ((2, 40, 40, 1), [[5, 2], [0, -3]])

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), section 5.2
    """

    pad: int = 6
    shift: int = 6

    def shape(self, image_shape):
        height, width, channels = image_shape
        return height + 2 * self.pad, width + 2 * self.pad, channels

    def draw(self, n, labels, rng):
        return {"shifts": rng.integers(-self.shift, self.shift + 1, (n, 2))}

    def compose(self, images, labels, index, drawn):
        """`images`, `labels`, and `shifts` (B, 2) int64, rows down and columns to the right."""
        shifts = drawn["shifts"][index]
        size = self.shape(images.shape[1:])[:2]
        placed = place(images[index], size, *(shifts + self.pad).T)
        return {"images": placed, **one_label(labels, index), "shifts": shifts}
