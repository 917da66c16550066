"""Change of the routing logits by each iteration, on test images."""

import numpy as np

from keras_capsule_poe.data.mapping import map_batches

IMAGES = 1_000


def logit_changes(model, images, most=IMAGES):
    """Return the mean change of the routing logits by each iteration, on `most` images."""
    if len(images) > most:
        images = images[np.linspace(0, len(images) - 1, most).astype(int)]
    changes = map_batches(model.coupling_changes, images).mean(axis=0, dtype="float64")
    return {f"iteration_{t + 1}": float(change) for t, change in enumerate(changes)}
