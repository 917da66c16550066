"""Options common to all image sources."""

import dataclasses
import numbers
import os
from collections.abc import Callable

from keras_capsule_poe.errors import DataError

# A grey image of this size takes 64 MiB.
LARGEST = 8192


@dataclasses.dataclass(frozen=True)
class Options:
    """Validated keyword arguments of `load_images`; an int `image_size` becomes a pair."""

    data_dir: str | os.PathLike | None = None
    manual_dir: str | os.PathLike | None = None
    column: str | None = None
    image_size: tuple[int, int] | None = None
    grey: bool = False
    limit: int | None = None
    skip_broken: bool = False
    test_fraction: float = 0.1
    seed: int = 0
    smallest: int | None = None
    store: str | os.PathLike | None = None
    report: Callable | None = None

    def __post_init__(self):
        for name in ("limit", "smallest"):
            value = getattr(self, name)
            if value is not None and (not _is_int(value) or value < 1):
                raise DataError(
                    f"`{name}` must be an integer of at least 1, or None. Received: {name}={value}."
                )
        for name in ("grey", "skip_broken"):
            if getattr(self, name) not in (True, False):
                raise DataError(
                    f"`{name}` must be True or False. Received: {name}={getattr(self, name)!r}."
                )
        if not isinstance(self.test_fraction, numbers.Real) or not 0 < self.test_fraction < 1:
            raise DataError(
                "`test_fraction` must be between 0 and 1, both excluded. "
                f"Received: test_fraction={self.test_fraction}."
            )
        if not _is_int(self.seed) or self.seed < 0:
            raise DataError(f"`seed` must be an integer of at least 0. Received: seed={self.seed}.")
        # The only way to assign in a frozen dataclass.
        object.__setattr__(self, "image_size", _image_size(self.image_size))
        if self.image_size is not None:
            self.check_size(*self.image_size)

    def refuse(self, source, *names):
        """Raise `DataError` if an option in `names`, which `source` does not support, is set."""
        for name in names:
            value = getattr(self, name)
            if value not in (None, False):
                shown = value if value is True else repr(str(value))
                raise DataError(
                    f"`{name}` has no meaning for {source}. Received: {name}={shown}.",
                    mend=f"leave_out:{name}",
                )

    def check_size(self, height, width):
        """Raise `DataError` for images smaller than `smallest`."""
        if self.smallest is not None and min(height, width) < self.smallest:
            raise DataError(
                f"images must be at least {self.smallest}x{self.smallest} pixels for this model. "
                f"Received: {height}x{width}.",
                mend="image_size",
            )


def _image_size(size):
    if size is None:
        return None
    pair = (size, size) if _is_int(size) else size
    try:
        height, width = pair
        sound = all(_is_int(side) and 1 <= side <= LARGEST for side in (height, width))
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise DataError(
            "`image_size` must be an integer or a pair (height, width) of integers, from 1 to "
            f"{LARGEST}. Received: image_size={size!r:.80}."
        )
    return int(height), int(width)


def _is_int(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
