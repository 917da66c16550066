"""How long a stage trains."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Epochs and batches of a stage.

    Without `epochs`, as many as make about `steps` steps: more of them on a small data set.

    Attributes:
        epochs: int, or None.
        steps: int, about how many, where `epochs` is None.
        batch_size: int, images a step.

    Raises:
        ValueError: If one is below one.

    Examples:

    >>> Schedule(steps=900, batch_size=32).over(60_000)
    (1, 1875)
    """

    epochs: int | None = None
    steps: int = 900
    batch_size: int = 128

    def __post_init__(self):
        for name, value in vars(self).items():
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={value!r}")

    def over(self, images):
        """Epochs, and steps an epoch, for so many training images: a pair of int."""
        steps = math.ceil(images / self.batch_size)
        return self.epochs or max(1, round(self.steps / steps)), steps
