"""Random images of a model, rendered in chunks."""

import keras

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse


def sample(model, n, seed, mode=None, domain=None):
    """Draw `n` codes and return them with their `images` (N, H, W, C)."""
    if n < 1:
        raise BadUse(f"`n` must be one or more. Received: n={n}")
    # All codes are drawn at once, so the chunk size changes nothing but rounding.
    drawn = keras.tree.map_structure(keras.ops.convert_to_numpy, model.draw(n, seed, mode, domain))
    return {"images": render(model, drawn["capsules"]), **drawn}


def render(model, capsules):
    """Return the images (N, H, W, C) of codes (N, J, E), as an array."""
    return map_batches(lambda codes: model.render(codes)["images"], capsules)
