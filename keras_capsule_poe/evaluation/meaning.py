"""What the capsules mean: the images, classes and directions that each stands for."""

import numpy as np
from keras import ops

from keras_capsule_poe.functions.winners import winners
from keras_capsule_poe.generation.grids import traversal
from keras_capsule_poe.generation.sampling import render


def capsule_meaning(probabilities, labels=None, shown=10):
    """The images and classes that each capsule stands for.

    A capsule wins the images for which it is the most probable one; the first wins a draw.

    Args:
        probabilities: Array (N, J), that a capsule is on for an image.
        labels: Integer array (N,) or (N, K), all that an image shows, from zero up, or `None`.
        shown: int, how many images of each capsule, at most.

    Returns:
        list of J dicts: `capsule`, its index; `top`, indices of the images for which it is most
        probable, most first; `share` of the images that it wins; `classes`, how many images of
        each class it wins, `None` without labels.

    Examples:

    >>> found = capsule_meaning(np.array([[0.9, 0.1], [0.2, 0.4], [0.7, 0.1]]), shown=2)
    >>> found[0]["top"]
    [0, 2]
    """
    probabilities = ops.convert_to_numpy(probabilities)
    winner = winners(probabilities)
    order = np.argsort(-probabilities, axis=0, kind="stable")
    return [
        {
            "capsule": capsule,
            "top": order[:shown, capsule].tolist(),
            "share": float(np.mean(winner == capsule)),
            "classes": None if labels is None else _counts(labels, winner == capsule),
        }
        for capsule in range(probabilities.shape[1])
    ]


def _counts(labels, chosen):
    labels = np.asarray(labels)
    return np.bincount(labels[chosen].ravel(), minlength=labels.max() + 1).tolist()


def mean_traversals(model, codes, rows=16, steps=9, span=0.5):
    """Each capsule's dimensions, varied one at a time around the mean code of the images it wins.

    In a ball each capsule of that code has the mean of its lengths: codes that point all ways have
    a mean near zero, which is the code of no image.

    Args:
        model: `GenerativeModel`.
        codes: Array (N, J, E); where a capsule wins none of them, the one on which
            it is most probable stands in for the mean.
        rows: int, how many dimensions, at most: those that vary most, most first.
        steps: int, values of each dimension, evenly spaced.
        span: float, see `image_traversal`.

    Returns:
        Array (J, rows, steps, H, W, C), pixels in [0, 1]; the middle of an odd number of steps
        is the mean code itself.

    Examples:

    >>> class Mirror:
    ...     CODES = "ball"
    ...
    ...     def render(self, capsules):
    ...         return {"images": capsules[..., None]}
    >>> codes = np.random.default_rng(0).uniform(-0.3, 0.3, size=(10, 3, 2))
    >>> mean_traversals(Mirror(), codes, steps=5).shape
    (3, 2, 5, 3, 2, 1)
    """
    codes = ops.convert_to_numpy(codes)
    winner = winners(codes)
    around = []
    for capsule in range(codes.shape[1]):
        won = codes[winner == capsule]
        if not len(won):
            won = codes[[np.linalg.norm(codes[:, capsule], axis=-1).argmax()]]
        dimensions = np.argsort(-won[:, capsule].std(axis=0), kind="stable")[:rows]
        mean = won.mean(axis=0)
        if model.CODES == "ball":
            lengths = np.linalg.norm(mean, axis=-1)
            usual = np.linalg.norm(won, axis=-1).mean(axis=0)
            mean *= (usual / np.maximum(lengths, 1e-12))[:, None]
        around.append(traversal(mean, capsule, dimensions, steps, span, model.CODES))
    around = np.stack(around)
    # All at once: small batches take nearly as long as large ones.
    images = render(model, around.reshape(-1, *codes.shape[1:]))
    return images.reshape(*around.shape[:3], *images.shape[1:])
