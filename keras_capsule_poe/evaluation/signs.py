"""Whether a model tells an image from its negative: by its free energy, and in what it draws."""

import numpy as np

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.sources import draws
from keras_capsule_poe.functions.compiled import compiled

# Enough for shares of a few percent; every row is compared with all training images.
TRAINING_IMAGES, COMPARED = 10_000, 2_000


def has_signs(model):
    """Whether a model has a free energy of visible units, whose sign can be turned.

    Examples:

    >>> has_signs(object())
    False
    """
    return callable(getattr(model, "visible_free_energy", None))


def sign_figures(model, data, samples=COMPARED, seed=0):
    """How far a model tells images from their negatives.

    A negative has the visible units -x. With centred features it is the image mirrored at the
    mean image.

    Args:
        model: `GenerativeModel` with `visible_free_energy` and `decode_visible`.
        data: `ImageData`.
        samples: int, of each kind of draws, and how many test images, at most; zero: no draws.
        seed: int.

    Returns:
        dict: `energy_gap`, mean F(-x) - F(x) over test images, nats; `auc`, the area under the
        curve of F, images against negatives: exactly 0 and 0.5 where F is even. And shares of
        negatives, see `negative_share`: `negatives_real` of test images, and `negatives_` and
        the name of the draws, as of `sources.draws`.

    Examples:

    >>> from keras_capsule_poe.data import ImageData, ImageSet
    >>> class Even:
    ...     MODES = {}
    ...
    ...     def to_visible(self, images):
    ...         return images[..., 0]
    ...
    ...     def visible_free_energy(self, x):
    ...         return -(x[:, 0, 0] ** 2)
    >>> pixels = np.random.default_rng(0).integers(256, size=(40, 8, 8, 1)).astype("uint8")
    >>> found = sign_figures(Even(), ImageData(ImageSet(pixels), ImageSet(pixels)))
    >>> found["energy_gap"], found["auc"], found["negatives_real"]
    (0.0, 0.5, 0.0)
    """
    chosen = np.random.default_rng(seed).permutation(len(data.train))[:TRAINING_IMAGES]
    to_visible, free_energy = compiled(model.to_visible), compiled(model.visible_free_energy)
    train = map_batches(to_visible, data.train.images[np.sort(chosen)])
    test = map_batches(to_visible, data.test.images[: samples or COMPARED])
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
    """Probability that one of `low` is below one of `high`, ties counted half.

    Args:
        low, high: Arrays (N,) and (M,).

    Examples:

    >>> area_under_curve(np.array([0, 1, 1]), np.array([1, 2]))
    0.8333333333333334
    """
    ordered = np.sort(low)
    below = np.searchsorted(ordered, high, "left").sum()
    upto = np.searchsorted(ordered, high, "right").sum()
    return float((below + upto) / (2 * len(low) * len(high)))


def negative_share(directions, training):
    """Share of directions nearer, by their cosine, to the negative of a training image.

    Args:
        directions: Array (N, K), of length one; visible units, whose origin is the mean of
            training images where features are centred.
        training: Array (M, K), likewise.

    Returns:
        float: where the best cosine of -f is above that of f; one half for draws of an odd
        decoder from a law that is even.

    Examples:

    >>> negative_share(np.array([[1.0, 0.0], [0.0, -1.0]]), np.eye(2))
    0.5
    """
    parts = np.array_split(directions, -(-len(directions) // 256))
    cosines = (part @ training.T for part in parts)
    return float(np.mean(np.concatenate([-c.min(axis=1) > c.max(axis=1) for c in cosines])))


def _directions(x):
    flat = x.reshape(len(x), -1)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-30)
