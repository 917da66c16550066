"""Duration of the training of a stage."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Epochs and batch size of a stage.

    If `epochs` is None, the number of epochs gives about `steps` steps. Small data sets then get
    more epochs.

    Attributes:
        epochs: int, or None.
        steps: int, approximate number of steps if `epochs` is None.
        batch_size: int, images in a step.

    Raises:
        ValueError: If a value is below 1.

    Example:

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
        """Return (epochs, steps of an epoch) for this number of training images."""
        steps = math.ceil(images / self.batch_size)
        return self.epochs or max(1, round(self.steps / steps)), steps
