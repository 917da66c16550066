"""The options that every source of images understands, checked once."""

import dataclasses
import numbers
import os

from keras_capsule_poe.errors import DataError

# Two 9x9 convolutions, the second with stride 2, leave nothing of a smaller image.
SMALLEST = 20


@dataclasses.dataclass(frozen=True)
class Options:
    """The keyword arguments of `load_images`; `image_size` is `(height, width)` or `None`."""

    data_dir: str | os.PathLike | None = None
    manual_dir: str | os.PathLike | None = None
    column: str | None = None
    image_size: tuple[int, int] | None = None
    grey: bool = False
    limit: int | None = None
    skip_broken: bool = False
    test_fraction: float = 0.1
    seed: int = 0

    def __post_init__(self):
        # A frozen dataclass can only be completed through object.__setattr__.
        object.__setattr__(self, "image_size", _image_size(self.image_size))
        if self.limit is not None and (not _is_int(self.limit) or self.limit < 1):
            raise DataError(
                f"`limit` must be an integer of at least 1, or None. Received: limit={self.limit}."
            )
        if not isinstance(self.test_fraction, numbers.Real) or not 0 < self.test_fraction < 1:
            raise DataError(
                "`test_fraction` must be between 0 and 1, both excluded. "
                f"Received: test_fraction={self.test_fraction}."
            )
        if not _is_int(self.seed) or self.seed < 0:
            raise DataError(f"`seed` must be an integer of at least 0. Received: seed={self.seed}.")

    def refuse_column(self, source):
        """Raises `DataError` if `column` is given for a source that has no columns."""
        if self.column is not None:
            raise DataError(
                f"`column` has no meaning for {source}; leave it out. "
                f"Received: column={self.column!r}."
            )


def check_not_too_small(height, width):
    """Raises `DataError` for images which the encoder's convolutions cannot take."""
    if min(height, width) < SMALLEST:
        raise DataError(
            f"images must be at least {SMALLEST}x{SMALLEST} pixels; received {height}x{width}; "
            f"use --image-size with {SMALLEST} or more to enlarge them."
        )


def _image_size(size):
    if size is None:
        return None
    pair = (size, size) if _is_int(size) else size
    try:
        height, width = pair
        sound = _is_int(height) and _is_int(width)
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise DataError(
            "`image_size` must be an integer or a pair (height, width) of integers. "
            f"Received: image_size={size!r}."
        )
    check_not_too_small(height, width)
    return int(height), int(width)


def _is_int(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
