"""Named results of image models."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


class Output(Mapping):
    """Base class of results, whose values are attributes and items: `r.images`, `r["images"]`."""

    # Former keys that still work.
    ALIASES: dict[str, str] = {}

    def __getitem__(self, key: str) -> Any:
        name = self.ALIASES.get(key, key)
        if vars(self).get(name) is None:
            raise KeyError(key)
        return vars(self)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, value in vars(self).items() if value is not None)

    def __len__(self) -> int:
        return sum(value is not None for value in vars(self).values())

    def __repr__(self):
        shown = ", ".join(f"{name}: {np.shape(value)}" for name, value in self.items())
        return f"{type(self).__name__}({shown})"


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class CapsuleCodes(Output):
    """Codes of N images, from `encode`.

    Attributes:
        capsules: Array (N, J, E), the capsules.
        probabilities: Array (N, J), the probability of each capsule.
        free_energy: Array (N,), the free energy of each image in nats. It is no score of how usual
            a single image is, see `outlier_scores`.
        shared: Array (N, S, E), capsules that code what the others leave of an image, or None.

    Example:

    >>> codes = CapsuleCodes(np.zeros((5, 3, 2)), np.zeros((5, 3)), np.zeros(5))
    >>> codes
    CapsuleCodes(capsules: (5, 3, 2), probabilities: (5, 3), free_energy: (5,))
    >>> codes.winners.tolist()
    [0, 0, 0, 0, 0]
    """

    capsules: np.ndarray
    probabilities: np.ndarray
    free_energy: np.ndarray
    shared: np.ndarray | None = None

    @property
    def winners(self) -> np.ndarray:
        """Index (N,) of the most probable capsule of each image."""
        return np.argmax(self.probabilities, axis=1)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Images(Output):
    """Decoded images, from `decode` and `reconstruct`.

    Attributes:
        images: Array (N, H, W, C), pixels in [0, 1].
        primary_capsules: Array (N, I, D), the decoded primary capsules, or None.
    """

    images: np.ndarray
    primary_capsules: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Samples(Output):
    """Random images, from `sample`.

    Attributes:
        images: Array (N, H, W, C), pixels in [0, 1].
        capsules: Array (N, J, E), the codes that were decoded.
        index: Array (N,), the capsule that is active in each code, or None if all are.
        shared: Array (N, S, E), shared capsules that were drawn and decoded with them, or None:
            their mean was.

    Example:

    >>> samples = Samples(np.zeros((2, 8, 8, 1)), np.zeros((2, 3, 4)), np.array([2, 0]))
    >>> samples["capsule"].tolist()  # the former name of `index`
    [2, 0]
    """

    ALIASES = {"capsule": "index"}

    images: np.ndarray
    capsules: np.ndarray
    index: np.ndarray | None = None
    shared: np.ndarray | None = None
