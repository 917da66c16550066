"""Sign symmetry: how well a model distinguishes images from their negatives."""

import numpy as np

from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.sources import draws

# Enough for shares of a few percent. Each row is compared with all training images.
TRAINING_IMAGES, COMPARED = 10_000, 2_000


def has_signs(model):
    """Return True if a model has a free energy of visible units."""
    return callable(getattr(model, "visible_free_energy", None))


def sign_metrics(model, data, samples=COMPARED, seed=0):
    """Return free energy gap and AUC of images against negatives, and shares of negatives."""
    chosen = np.random.default_rng(seed).permutation(len(data.train))[:TRAINING_IMAGES]
    to_visible, free_energy = compiled(model.to_visible), compiled(model.visible_free_energy)
    train = map_batches(to_visible, data.train.images[np.sort(chosen)])
    test = map_batches(to_visible, data.test.images[: samples or COMPARED])
    # A negative has the visible units -x: the image mirrored at the mean if x is centred.
    energies = [map_batches(free_energy, sign * test) for sign in (1, -1)]
    directions = _directions(train)
    figures = {
        "energy_gap": float(np.mean(energies[1].astype("float64") - energies[0])),
        "auc": area_under_curve(*energies),
        "negatives_real": negative_share(_directions(test), directions),
    }
    for name, (mode, domain) in draws(model).items() if samples else ():
        codes = np.asarray(model.draw(samples, seed, mode, domain)["capsules"])
        x = map_batches(model.decode_visible, codes)
        figures[f"negatives_{name}"] = negative_share(_directions(x), directions)
    return figures


def area_under_curve(low, high):
    """Return the probability that one of `low` is below one of `high`, with ties as half."""
    ordered = np.sort(low)
    below = np.searchsorted(ordered, high, "left").sum()
    upto = np.searchsorted(ordered, high, "right").sum()
    return float((below + upto) / (2 * len(low) * len(high)))


def negative_share(directions, training):
    """Return the share of directions (N, K) nearer to the negative of a training image."""
    parts = np.array_split(directions, -(-len(directions) // 256))
    cosines = (part @ training.T for part in parts)
    return float(np.mean(np.concatenate([-c.min(axis=1) > c.max(axis=1) for c in cosines])))


def _directions(x):
    flat = x.reshape(len(x), -1)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-30)
