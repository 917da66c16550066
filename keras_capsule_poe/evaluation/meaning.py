"""Images, classes and traversals that show what each capsule represents."""

import numpy as np
from keras import ops

from keras_capsule_poe.functions.winners import winners
from keras_capsule_poe.generation.grids import traversal
from keras_capsule_poe.generation.sampling import render


def capsule_meaning(probabilities, labels=None, shown=10):
    """Return one dict per capsule: `top` images, `share` of images won, counts of `classes`."""
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
    """Return traversals (J, rows, steps, H, W, C) around the mean code of the images won."""
    codes = ops.convert_to_numpy(codes)
    winner = winners(codes)
    around = []
    for capsule in range(codes.shape[1]):
        won = codes[winner == capsule]
        # A capsule that wins no image uses the image on which it is longest.
        if not len(won):
            won = codes[[np.linalg.norm(codes[:, capsule], axis=-1).argmax()]]
        dimensions = np.argsort(-won[:, capsule].std(axis=0), kind="stable")[:rows]
        mean = won.mean(axis=0)
        # Vectors of all directions have a mean near zero, so restore the mean length.
        if model.CODES == "ball":
            lengths = np.linalg.norm(mean, axis=-1)
            usual = np.linalg.norm(won, axis=-1).mean(axis=0)
            mean *= (usual / np.maximum(lengths, 1e-12))[:, None]
        around.append(traversal(mean, capsule, dimensions, steps, span, model.CODES))
    around = np.stack(around)
    # Render all at once, because small batches take nearly as long as large ones.
    images = render(model, around.reshape(-1, *codes.shape[1:]))
    return images.reshape(*around.shape[:3], *images.shape[1:])
