"""How long a stage trains."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Epochs and batches of a stage.

    Without `epochs`, as many as make about `steps` steps: more of them on a small data set. Of a
    large one, of which even one makes more steps, an epoch may end before all images were seen.

    Attributes:
        epochs: int, or None.
        steps: int, about how many, where `epochs` is None.
        batch_size: int, images a step.
        least_epoch: float in (0, 1], the share of the images that are seen at least.

    Raises:
        ValueError: If one is out of range.

    Examples:

    >>> Schedule(steps=900, batch_size=32).over(60_000)
    (1, 1875)
    >>> Schedule(steps=900, batch_size=32, least_epoch=0.5).over(60_000)
    (1, 938)
    """

    epochs: int | None = None
    steps: int = 900
    batch_size: int = 128
    least_epoch: float = 1.0

    def __post_init__(self):
        for name in ("epochs", "steps", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={value!r}")
        if not 0 < self.least_epoch <= 1:
            raise ValueError(
                "`least_epoch` must be above zero and at most 1, a share of the images. Received: "
                f"least_epoch={self.least_epoch!r}"
            )

    def over(self, images):
        """Epochs, and steps an epoch, for so many training images: a pair of int."""
        steps = math.ceil(images / self.batch_size)
        if self.epochs:
            return self.epochs, steps
        least = max(self.steps, math.ceil(self.least_epoch * steps))
        return max(1, round(self.steps / steps)), min(steps, least)

    def seen(self, images):
        """How many images all steps take, of so many training images: int."""
        epochs, steps = self.over(images)
        return epochs * min(images, steps * self.batch_size)
