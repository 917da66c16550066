"""The one sampler: what it gives is the same in a picture, as arrays, and from a SavedModel."""

import keras

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse


def sample(model, n, seed, mode=None, domain=None):
    """Images drawn at random.

    Codes are drawn in one go and rendered a chunk at a time, so that nothing but rounding
    depends on the chunks.

    Args:
        model: `GenerativeModel`.
        n: int, how many, one or more.
        seed: int.
        mode, domain: See `GenerativeModel.draw`.

    Returns:
        dict of arrays: `images` (N, H, W, C) float32, pixels in [0, 1], and what the model's
        `draw` gives: `capsules` (N, J, E), and `capsule` (N,) where each image is of one.

    Raises:
        BadUse: If `n` is below one, or the mode or the domain unknown.

    Examples:

    >>> class Ramp:
    ...     def draw(self, n, seed, mode=None, domain=None):
    ...         return {"capsules": keras.ops.ones((n, 3, 2))}
    ...
    ...     def render(self, capsules):
    ...         return {"images": capsules[..., None]}
    >>> sample(Ramp(), n=5, seed=0)["images"].shape
    (5, 3, 2, 1)
    """
    if n < 1:
        raise BadUse(f"`n` must be one or more. Received: n={n}")
    drawn = keras.tree.map_structure(keras.ops.convert_to_numpy, model.draw(n, seed, mode, domain))
    return {"images": render(model, drawn["capsules"]), **drawn}


def render(model, capsules):
    """Images (N, H, W, C), pixels in [0, 1], of codes (N, J, E), as arrays.

    Args:
        model: `GenerativeModel`.
        capsules: Array (N, J, E).

    Examples:

    >>> class Mirror:
    ...     def render(self, capsules):
    ...         return {"images": capsules[..., None]}
    >>> render(Mirror(), keras.ops.ones((5, 3, 2))).shape
    (5, 3, 2, 1)
    """
    return map_batches(lambda codes: model.render(codes)["images"], capsules)
