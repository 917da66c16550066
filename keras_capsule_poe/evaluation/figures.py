"""Figures of a generative model on its data: reconstruction, free energy and representation."""

import warnings

import keras
import numpy as np

from keras_capsule_poe.data.mapping import CHUNK, map_batches, to_pixels
from keras_capsule_poe.evaluation.clusters import clustering_figures
from keras_capsule_poe.evaluation.neighbours import neighbour_accuracy
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.metrics import error_and_size

# Of more training images than all that are in memory at once, a sample; and so many test images.
PROBE_IMAGES, PROBE_SAMPLE = 60_000, 20_000
# Feature maps are an order larger than codes, and so are neighbours slower than planes.
FEATURE_IMAGES, FEATURE_TESTED = 12_000, 10_000


def evaluate(
    model, data, probe_images=None, test_images=None, seed=0, reconstruction=None, kept=None
):
    """Figures of a model on its data set; whatever is fitted is fitted on training images.

    Args:
        model: `GenerativeModel`.
        data: `ImageData`.
        probe_images: int, training images to learn from, chosen at random; `None`: all, or of
            more than 60,000 a sample of 20,000. Probes of features and nearest neighbours take
            at most 12,000 of them.
        test_images: int, the first so many test images; `None`: all, but for whatever rests on
            codes the first 60,000, and on features the first 10,000.
        seed: int, of the choice of images and of the clusterings.
        reconstruction: dict of `reconstruction_errors`, of the test images, that is known already.
        kept: dict that gets the `features` of the training images of its probe, if those are as
            many as there may be; see `chosen_images`.

    Returns:
        dict: `reconstruction` (relative squared errors of the model's `reconstructions`),
        `free_energy` (mean of training and test images and their gap, nats), `probe` and
        `neighbours` (accuracy on test images from capsules, their probabilities, features and
        pixels) and `clustering`, see `clustering_figures`; the last three empty without labels
        of two classes.

    Examples:

    >>> from keras_capsule_poe.data import ImageData, ImageSet
    >>> class Corner:
    ...     def code(self, images):
    ...         corner = images[:, :2, :2, 0]
    ...         p = corner[:, 0]
    ...         return {"capsules": corner, "probabilities": p, "free_energy": -p[:, 0]}
    ...
    ...     def reconstructions(self, images):
    ...         return {"half": (images / 2, images)}
    >>> images = ImageSet(np.full((4, 8, 8, 1), 255, "uint8"))
    >>> evaluate(Corner(), ImageData(images, images))["reconstruction"]
    {'half': 0.25}
    """
    whole = data.test if test_images is None else data.test.head(test_images)
    test = whole.head(PROBE_IMAGES)
    if probe_images is None and len(data.train) > PROBE_IMAGES:
        probe_images = PROBE_SAMPLE
    chosen = chosen_images(data, seed)[:probe_images]
    featured = (FEATURE_IMAGES, FEATURE_TESTED) if has_classes(data) else (0, 0)
    # Of both sets by the same graphs.
    graphs = compiled(lambda x: model.featured_code(x)), compiled(lambda x: model.code(x))
    train = _codes(graphs, data.train.images[chosen], featured[0])
    held_out = _codes(graphs, test.images, featured[1])
    energy, held_out_energy = (float(code["free_energy"].mean()) for code in (train, held_out))
    if reconstruction is None:
        reconstruction, _ = reconstruction_errors(model, whole.images)
    figures = {
        "reconstruction": reconstruction,
        "free_energy": {
            "train": energy,
            "test": held_out_energy,
            "gap": held_out_energy - energy,
        },
        "probe": {},
        "neighbours": {},
        "clustering": {},
    }
    if not has_classes(data):
        return figures
    labels = data.train.labels[chosen]
    figures["clustering"] = clustering_figures(
        _flat(train.pop("experts", train["capsules"])),
        labels,
        _flat(held_out.pop("experts", held_out["capsules"])),
        test.labels,
        train["probabilities"],
        held_out["probabilities"],
        seed,
    )
    if kept is not None and len(train["features"]) == min(FEATURE_IMAGES, len(data.train)):
        kept["features"] = train["features"]
    # Each when its turn comes, so that fewer are in memory.
    sets = {
        "capsules": lambda: (train.pop("capsules"), held_out.pop("capsules")),
        "probabilities": lambda: (train.pop("probabilities"), held_out.pop("probabilities")),
        "features": lambda: (train.pop("features"), held_out.pop("features")),
        "pixels": lambda: [to_pixels(data.train.images[chosen]), to_pixels(test.images)],
    }
    for name, inputs in sets.items():
        x, x_test = map(_flat, inputs())
        of_train, of_test = labels[: len(x)], test.labels[: len(x_test)]
        figures["probe"][name] = linear_probe(x, of_train, x_test, of_test)
        some = slice(FEATURE_IMAGES)
        figures["neighbours"][name] = neighbour_accuracy(x[some], of_train[some], x_test, of_test)
        del x, x_test
    return figures


def chosen_images(data, seed):
    """Which training images are looked at, the first so many of these: all, in random order."""
    return np.random.default_rng(seed).permutation(len(data.train))


def _codes(graphs, images, featured):
    """Codes of images, and of the first so many `features`: both are found at once.

    Args:
        graphs: Pair of functions of images, to codes with features and to codes alone.
        images: Array (N, H, W, C).
        featured: int.
    """
    featured_code, code = graphs
    # Chunks end where they do for codes alone.
    first = CHUNK * -(-min(featured, len(images)) // CHUNK)
    if not first:
        return map_batches(code, images)
    found = map_batches(featured_code, images[:first])
    features = found.pop("features")[:featured]
    if first < len(images):
        rest = map_batches(code, images[first:])
        for name in found:
            found[name] = np.concatenate([found[name], rest.pop(name)])
    return {**found, "features": features}


def reconstruction_errors(model, images, kept=0):
    """Relative squared errors of a model's reconstructions, over all images together.

    Args:
        model: `GenerativeModel`.
        images: Array (N, H, W, C), uint8, or pixels in [0, 1].
        kept: int, of how many images to keep what is decoded, the first ones.

    Returns:
        dict of float: |decoded - original|^2 / |original|^2 by the names of
        `GenerativeModel.reconstructions`; dict of arrays (kept, H, W, C) by those of
        `GenerativeModel.CEILINGS`, of fewer images if there are no more; empty if none is kept.

    Examples:

    >>> class Half:
    ...     CEILINGS = ("half",)
    ...
    ...     def reconstructions(self, images):
    ...         return {"half": (images / 2, images)}
    >>> errors, decoded = reconstruction_errors(Half(), np.ones((4, 2, 2, 1), "float32"), kept=3)
    >>> errors, decoded["half"].shape
    ({'half': 0.25}, (3, 2, 2, 1))
    """

    def squares(found):
        return {
            name: error_and_size(*pair, axis=tuple(range(1, len(pair[0].shape))))
            for name, pair in found.items()
        }

    def with_images(batch):
        found = model.reconstructions(batch)
        return {
            "squares": squares(found),
            "images": {name: found[name][0] for name in model.CEILINGS},
        }

    parts, decoded = [], {}
    # Chunks end where they do if nothing is kept.
    whole = CHUNK * -(-kept // CHUNK)
    if kept:
        first = map_batches(with_images, images[:whole])
        decoded = {name: shown[:kept] for name, shown in first["images"].items()}
        parts.append(first["squares"])
    if whole < len(images) or not parts:
        parts.append(map_batches(lambda x: squares(model.reconstructions(x)), images[whole:]))
    errors = {}
    for name in parts[0]:
        error, size = (sum(part[name][k].sum() for part in parts) for k in (0, 1))
        # As `relative_error` of images that are all black.
        errors[name] = float(error / max(size, keras.config.epsilon()))
    return errors, decoded


def has_classes(data):
    """Whether an `ImageData` has labels of two classes or more, one an image.

    Examples:

    >>> from keras_capsule_poe.data import ImageData, ImageSet
    >>> images = ImageSet(np.zeros((2, 4, 4, 1), "uint8"), np.array([0, 1]))
    >>> has_classes(ImageData(images, images))
    True
    """
    return (
        data.train.labels is not None
        and data.test.labels is not None
        and data.train.labels.ndim == data.test.labels.ndim == 1
        and len(np.unique(data.train.labels)) > 1
    )


def linear_probe(x_train, y_train, x_test, y_test):
    """Test accuracy of multinomial logistic regression on standardised inputs.

    Args:
        x_train: Array (N, K).
        y_train: Integer array (N,).
        x_test: Array (M, K).
        y_test: Integer array (M,).

    Returns:
        float in [0, 1].

    Examples:

    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> linear_probe(x, x[:, 0] > 0, x, x[:, 0] > 0)
    1.0
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=100))
    with warnings.catch_warnings():
        # More steps change the last digits of the accuracy and take minutes on many features.
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit(np.asarray(x_train, "float32"), y_train)
    return float(probe.score(np.asarray(x_test, "float32"), y_test))


def _flat(array):
    return array.reshape(len(array), -1)
