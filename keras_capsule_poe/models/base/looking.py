"""Images between, near and unlike others, by the codes of a model."""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_capsule_poe.core.arguments import number_given
from keras_capsule_poe.data.mapping import chunks, to_pixels
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.models.base.outputs import Images, Output

# Images whose distances are computed together.
_AT_ONCE = 1000
# Mean square of the pixels of an image that is nearly black.
DARKEST = 1e-6


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Neighbours(Output):
    """Images that are near others, from `nearest`.

    Attributes:
        index: Integer array (n,), the images, nearest first; (N, n) for N images.
        distance: Array of the same shape, the Euclidean distances between codes.

    Example:

    >>> Neighbours(np.array([4, 7]), np.array([0.1, 0.2]))
    Neighbours(index: (2,), distance: (2,))
    """

    index: np.ndarray
    distance: np.ndarray


class Looking:
    """Mixin for a `GenerativeModel` with methods to look into one's own images."""

    def interpolate(self: Any, a: Any, b: Any, steps: int = 9) -> Images:
        """Decode mixtures of the codes of two images.

        Args:
            a, b: Images, as of `encode`: one each, or as many of both.
            steps: Integer, the number of images from `a` to `b`, at least 2.

        Returns:
            `Images` with `images` (steps, H, W, C), or (N, steps, H, W, C) for N pairs. The first
            and the last are the reconstructions of `a` and of `b`.

        Raises:
            DataError: If an image has another shape, type or range.
            BadUse: If there is not one image of `b` for each of `a`.

        Example:

        >>> import keras_capsule_poe as kcp
        >>> digits = kcp.data.load_images("digits", limit=2).train.images
        >>> kcp.load("mnist").interpolate(digits[:1], digits[1:], steps=5)
        Images(images: (5, 28, 28, 1))
        """
        steps = number_given("steps", steps, 2)
        first, last = (self.encode(self._checked(each)).capsules for each in (a, b))
        if len(first) != len(last) or not len(first):
            raise BadUse(
                "`a` and `b` must be one image or more, and as many of both. "
                f"Received: {len(first)} and {len(last)} images"
            )
        t = np.linspace(0, 1, steps, dtype="float32")[:, None, None]
        codes = (1 - t) * first[:, None] + t * last[:, None]
        images = self.decode(codes.reshape(-1, *first.shape[1:])).images
        images = images.reshape(len(first), steps, *images.shape[1:])
        return Images(images[0] if len(first) == 1 else images)

    def nearest(self: Any, image: Any, images: Any, n: int = 5) -> Neighbours:
        """Find the images whose codes are nearest to that of an image.

        Args:
            image: Image, as of `encode`, or several.
            images: Images among which to look, as of `encode`.
            n: Integer, how many to find.

        Returns:
            `Neighbours`. An image that is itself among `images` is its own first neighbour.

        Raises:
            DataError: If an image has another shape, type or range.
            BadUse: If `n` is no integer from 1 to the number of `images`.

        Example:

        >>> import keras_capsule_poe as kcp
        >>> digits = kcp.data.load_images("digits", limit=50).train.images
        >>> kcp.load("mnist").nearest(digits[3], digits, n=2).index[0]
        np.int64(3)
        """
        places, wanted = (self._mapped("place", self._checked(each)) for each in (images, image))
        places, wanted = places["place"], wanted["place"]
        if not len(places) or not len(wanted):
            raise BadUse(
                "`image` and `images` must be one image or more. "
                f"Received: {len(wanted)} and {len(places)} images"
            )
        n, found = number_given("n", n, 1, len(places)), []
        squares = np.square(places).sum(axis=1)
        for some in chunks(wanted, _AT_ONCE):
            gaps = squares - 2 * some @ places.T + np.square(some).sum(axis=1)[:, None]
            index = np.argsort(gaps, axis=1, kind="stable")[:, :n]
            found.append((index, np.sqrt(np.maximum(np.take_along_axis(gaps, index, 1), 0))))
        index, distance = map(np.concatenate, zip(*found))
        return Neighbours(*((index[0], distance[0]) if len(wanted) == 1 else (index, distance)))

    def outlier_scores(self: Any, images: Any) -> np.ndarray:
        """Return how unlike the training images each image is.

        This is the squared error of its reconstruction, relative to its squared pixels. The free
        energy is no such score: noise and blank images have a lower one than training images.

        Args:
            images: Images, as of `encode`.

        Returns:
            Array (N,). The higher it is, the more unlike the training images an image is. Compare
            with the scores of images that are known to be usual.

        Raises:
            DataError: If an image has another shape, type or range.

        Example:

        >>> import keras_capsule_poe as kcp
        >>> digits = kcp.data.load_images("digits", limit=50).train.images
        >>> noise = np.random.default_rng(0).uniform(size=digits.shape)
        >>> model = kcp.load("mnist")
        >>> bool(model.outlier_scores(noise).mean() > model.outlier_scores(digits).mean())
        True
        """
        images = self._checked(images)
        pixels, made = to_pixels(images), self.reconstruct(images).images
        error, size = (np.square(x).mean(axis=(1, 2, 3)) for x in (pixels - made, pixels))
        return error / np.maximum(size, DARKEST)

    def directions(self: Any, capsule: int, images: Any = None) -> Any:
        """Find how a capsule's codes change the height, slant or brightness of its images.

        Args:
            capsule: Integer.
            images: Test images, for models that draw no single capsules, such as classifiers.

        Returns:
            List of `Direction`, the best explained property first, see `directions.directions`.

        Raises:
            BadUse: If the capsule does not exist, or a classifier is given without images.
            ValueError: If a classifier has no decoder.

        Example:

        >>> import keras_capsule_poe as kcp
        >>> kcp.load("mnist").directions(3)[0].vector.shape
        (16,)
        """
        self.check_fitted()
        from keras_capsule_poe.directions import directions

        return directions(self, capsule, images)

    def place(self: Any, images: Any) -> dict[str, Any]:
        """Return a dict with `place` (B, J E): codes whose distances compare images."""
        code = self.code(images)
        found = code.get("experts", code["capsules"])
        return {"place": ops.reshape(found, (-1, found.shape[1] * found.shape[2]))}
