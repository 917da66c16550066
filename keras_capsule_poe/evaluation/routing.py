"""How far routing moves its logits, iteration by iteration, on images it was not trained on."""

import numpy as np

from keras_capsule_poe.data.mapping import map_batches

IMAGES = 1_000


def logit_changes(model, images, most=IMAGES):
    """Mean change of the routing logits by each iteration, see `functions.coupling_changes`.

    Args:
        model: `CapsuleClassifier` with `iterations`.
        images: Array (N, H, W, C), uint8, or pixels in [0, 1].
        most: int, images at most; of more, as many at even distances.

    Returns:
        dict of float: `iteration_1` and so on.

    Examples:

    >>> class Fixed:
    ...     def coupling_changes(self, images):
    ...         return ops.stack([images[:, 0, 0, 0], images[:, 1, 1, 0]], axis=1)
    >>> logit_changes(Fixed(), np.full((3, 2, 2, 1), 0.25, "float32"))
    {'iteration_1': 0.25, 'iteration_2': 0.25}
    """
    if len(images) > most:
        images = images[np.linspace(0, len(images) - 1, most).astype(int)]
    changes = map_batches(model.coupling_changes, images).mean(axis=0, dtype="float64")
    return {f"iteration_{t + 1}": float(change) for t, change in enumerate(changes)}
