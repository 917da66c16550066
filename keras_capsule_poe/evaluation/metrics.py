"""Metrics of a generative model: reconstruction, free energy and representation."""

import warnings

import keras
import numpy as np

from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data.mapping import CHUNK, map_batches, to_pixels
from keras_capsule_poe.evaluation.clusters import clustering_metrics
from keras_capsule_poe.evaluation.distances import neighbour_accuracy
from keras_capsule_poe.metrics import error_and_size

# Of more training images than the first number, use a sample of the second, to save memory.
# The first number also limits the test images.
PROBE_IMAGES, PROBE_SAMPLE = 60_000, 20_000
# Features take more memory than codes, and neighbours more time than linear probes.
FEATURE_IMAGES, FEATURE_TESTED = 12_000, 10_000


def silent(text):
    """Ignore a text about progress."""


def evaluate(
    model,
    data,
    probe_images=None,
    test_images=None,
    seed=0,
    reconstruction=None,
    kept=None,
    progress=silent,
):
    """Evaluate a model on its data set: reconstruction, free energy, probes and clusters.

    Probes and clusterings are fitted on training images and scored on test images.

    Args:
        model: `GenerativeModel`.
        data: `ImageData`.
        probe_images: int, number of training images for the fits, chosen at random. `None`
            means all, or 20,000 of more than 60,000. Probes of features and nearest neighbours
            use at most 12,000 of them.
        test_images: int, number of test images, the first ones. `None` means all. Metrics of
            codes use at most 60,000 of them, and metrics of features at most 10,000.
        seed: int, seed of the random choice and of the clusterings.
        reconstruction: dict of relative errors of the test images, if already known.
        kept: dict, filled with the `features` of the probe's training images. It stays empty if
            `probe_images` or missing labels limit their number.
        progress: Function that is called with a text at each step.

    Returns:
        dict of dicts:

        - `reconstruction`: relative squared error of each of the model's `reconstructions`.
        - `free_energy`: means of `train` and `test` images and their `gap`, in nats.
        - `probe`: test accuracy of `linear_probe` on capsules, their probabilities, features
          and pixels.
        - `neighbours`: test accuracy of the nearest training images, on the same inputs.
        - `clustering`: accuracy and mutual information of four clusterings.

        The last three are empty unless each image has one label and there are two classes.

    Example:

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
    progress("encoding images")
    # Both sets share the same graphs.
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
    progress("clustering")
    figures["clustering"] = clustering_metrics(
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
    # Each pair is freed after its use, to save memory.
    sets = {
        "capsules": lambda: (train.pop("capsules"), held_out.pop("capsules")),
        "probabilities": lambda: (train.pop("probabilities"), held_out.pop("probabilities")),
        "features": lambda: (train.pop("features"), held_out.pop("features")),
        "pixels": lambda: [to_pixels(data.train.images[chosen]), to_pixels(test.images)],
    }
    for name, inputs in sets.items():
        progress(f"linear probe and neighbours of {name}")
        x, x_test = map(_flat, inputs())
        of_train, of_test = labels[: len(x)], test.labels[: len(x_test)]
        figures["probe"][name] = linear_probe(x, of_train, x_test, of_test)
        some = slice(FEATURE_IMAGES)
        figures["neighbours"][name] = neighbour_accuracy(x[some], of_train[some], x_test, of_test)
        del x, x_test
    return figures


def chosen_images(data, seed):
    """Return the indices of all training images in random order."""
    return np.random.default_rng(seed).permutation(len(data.train))


def _codes(graphs, images, featured):
    """Return the codes of images, and the `features` of the first `featured` ones."""
    featured_code, code = graphs
    # Whole chunks, because graphs of other batch sizes round differently.
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
    """Return |decoded - original|^2 / |original|^2 by name, and the first decoded images."""

    def squares(found):
        return {
            name: error_and_size(*pair, axis=tuple(range(1, len(pair[0].shape))))
            for name, pair in found.items()
        }

    def with_images(batch):
        found = model.reconstructions(batch)
        return {
            "squares": squares(found),
            "images": {name: found[name][0] for name in model.upper_bounds},
        }

    parts, decoded = [], {}
    # Whole chunks, as in `_codes`.
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
        # Like `relative_error`, stay finite for images that are all black.
        errors[name] = float(error / max(size, keras.config.epsilon()))
    return errors, decoded


def has_classes(data):
    """Return True if images have one label each and training has two or more classes."""
    return (
        data.train.labels is not None
        and data.test.labels is not None
        and data.train.labels.ndim == data.test.labels.ndim == 1
        and len(np.unique(data.train.labels)) > 1
    )


def linear_probe(x_train, y_train, x_test, y_test):
    """Return the test accuracy of multinomial logistic regression on standardised inputs.

    The regression has an L2 penalty (C = 0.1) and at most 100 iterations. Mean and variance of
    the standardisation are those of the training inputs.

    Args:
        x_train: Array (N, K), training inputs.
        y_train: Integer array (N,), training labels.
        x_test: Array (M, K), test inputs.
        y_test: Integer array (M,), test labels.

    Returns:
        float in [0, 1].

    Example:

    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> linear_probe(x, x[:, 0] > 0, x, x[:, 0] > 0)
    1.0

    Reference:

    - [Alain & Bengio, 2016](https://arxiv.org/abs/1610.01644)
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=100))
    with warnings.catch_warnings():
        # More iterations change only the last digits, and take minutes on many features.
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit(np.asarray(x_train, "float32"), y_train)
    return float(probe.score(np.asarray(x_test, "float32"), y_test))


def _flat(array):
    return array.reshape(len(array), -1)
