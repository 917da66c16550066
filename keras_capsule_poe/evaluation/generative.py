"""Metrics of generative models: reconstruction, free energy, codes, samples and sign symmetry."""

import keras
import numpy as np

from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data.mapping import CHUNK, chunks, map_batches, to_pixels
from keras_capsule_poe.evaluation.baselines import VAE, baseline_set
from keras_capsule_poe.evaluation.feature_metrics import (
    clustering_metrics,
    linear_probe,
    memorisation,
    nearest_training_distance,
    neighbour_accuracy,
)
from keras_capsule_poe.evaluation.scores import Scorer, has_classes
from keras_capsule_poe.metrics import error_and_size
from keras_capsule_poe.models.base.protocols import whole

# Training and test images of the probes at most: more change their accuracy little.
PROBE_IMAGES, PROBE_TESTED = 20_000, 60_000
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
            means 20,000. Probes of features and nearest neighbours use at most 12,000 of them.
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
    test = whole.head(PROBE_TESTED)
    probed = PROBE_IMAGES if probe_images is None else probe_images
    chosen = chosen_images(data, seed)[:probed]
    featured = (FEATURE_IMAGES, FEATURE_TESTED) if has_classes(data) else (0, 0)
    progress("encoding images")
    # Both sets share the same graphs.
    graphs = compiled(lambda x: model.featured_code(x)), compiled(lambda x: model.code(x))
    train = _codes(graphs, data.train.images[chosen], featured[0])
    held_out = _codes(graphs, test.images, featured[1])
    energy, held_out_energy = (float(code["free_energy"].mean()) for code in (train, held_out))
    if reconstruction is None:
        reconstruction, _ = reconstruction_errors(model, whole.images)
    metrics = {
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
        return metrics
    labels = data.train.labels[chosen]
    progress("clustering")
    metrics["clustering"] = clustering_metrics(
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
    some = slice(FEATURE_IMAGES)
    for name in ("capsules", "probabilities", "features", "pixels"):
        progress(f"linear probe and neighbours of {name}")
        # Each pair is freed after its use, to save memory.
        if name == "pixels":
            x, x_test = to_pixels(data.train.images[chosen]), to_pixels(test.images)
        else:
            x, x_test = train.pop(name), held_out.pop(name)
        x, x_test = _flat(x), _flat(x_test)
        y, y_test = labels[: len(x)], test.labels[: len(x_test)]
        metrics["probe"][name] = linear_probe(x, y, x_test, y_test)
        metrics["neighbours"][name] = neighbour_accuracy(x[some], y[some], x_test, y_test)
        del x, x_test
    return metrics


def _flat(array):
    return array.reshape(len(array), -1)


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


# Enough for a median and a small quantile. Each one is compared with all training images.
MEMORISATION_IMAGES = 2_000


def sample_metrics(
    model,
    data,
    samples=10_000,
    seed=0,
    cache=None,
    vae_seconds=0,
    decoded=None,
    features=None,
    baselines="none",
    progress=silent,
):
    """Evaluate samples with a classifier that is trained on the data set.

    The metrics cover real training images, the model's reconstruction upper bounds, its samples
    and the baselines. Distances and overlap use the features of this classifier, not of an
    Inception network, and compare with the test images.

    Args:
        model: `GenerativeModel`.
        data: `ImageData` with labels.
        samples: int, number of images of each kind, limited by the size of the data set.
        seed: int, seed of the samples and the baselines.
        cache: folder of trained classifiers. `None` means the environment variable
            `CAPSPOE_CACHE`, or else `~/.cache/keras_capsule_poe`.
        vae_seconds: float, seconds to train a variational autoencoder as a baseline. Zero omits
            it. It needs `baselines="trained"`.
        decoded: dict of arrays (N, H, W, C), reconstructions of the test images, if already known.
        features: Array (N, ...), training features for the baselines, if already known.
        baselines: str, the baselines: `"none"`, `"simple"` (Gaussians and a mixture) or
            `"trained"` (these and a Boltzmann machine).
        progress: Function that is called with a text at each step.

    Returns:
        dict: `classifier_accuracy` on the test images, and for each kind of image the dict of
        `score_images`. Further metrics are

        - `sample_distance`, `held_out_distance`, `relative_distance`, `copies`: distances to
          training images. They exist for draws near the training data, the mixture and the
          autoencoder.

        With an autoencoder, `vae_parameters`, `vae_seconds` and `vae_steps` describe it.

    Raises:
        BadUse: If the images have no labels.
        ValueError: If `baselines` is unknown, or `vae_seconds` does not go with it.

    Example:

    >>> import tempfile
    >>> from keras_capsule_poe.data import ImageData, ImageSet
    >>> class Half:
    ...     upper_bounds, modes, capsules, dim = ("half",), {}, 1, 4
    ...
    ...     def reconstructions(self, images):
    ...         return {"half": (images / 2, images)}
    ...
    ...     def to_features(self, images):
    ...         return images
    ...
    ...     def from_features(self, features):
    ...         return features
    >>> pixels = np.random.default_rng(0).integers(256, size=(40, 8, 8, 1)).astype("uint8")
    >>> images = ImageSet(pixels, np.arange(40) % 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     list(sample_metrics(Half(), ImageData(images, images), cache=folder))[:3]
    ['classifier_accuracy', 'real', 'half']
    """
    made = baseline_set(baselines, model, seed, vae_seconds)
    progress("training the evaluation classifier, or reading it")
    # Coverage and distances depend on the number of images, so it is the same for all kinds.
    samples = min(samples, len(data.test), len(data.train))
    scorer = Scorer(data, samples, cache)
    test, some = scorer.test, slice(None, MEMORISATION_IMAGES)
    usual, _ = nearest_training_distance(test.images[some], data.train.images)
    metrics = {"classifier_accuracy": scorer.classifier.accuracy(test)}
    near = (*nearest_to_training(model), "gaussian_mixture", VAE)
    sources = image_sources(model, data, len(test), samples, seed, made, decoded, features)
    for number, (name, draw) in enumerate(sources.items(), start=1):
        progress(f"samples {number} of {len(sources)}, {name.replace('_', ' ')}")
        images, capsule = draw()
        metrics[name] = scorer(images, capsule)
        if name in near:
            metrics[name] |= memorisation(images[some], usual, data.train.images)
    if VAE in made:
        metrics |= {f"vae_{name}": value for name, value in made[VAE]().about.items()}
    return metrics


def image_sources(
    model, data, test_images, samples, seed, baselines=None, decoded=None, features=None
):
    """Return functions by name that return images and their capsules, or None for these."""
    chosen = chosen_images(data, seed)
    test = data.test.images[:test_images]
    baselines, upper_bounds = baselines or {}, dict(decoded or {})
    known = [] if features is None else [features]
    from_features = compiled(lambda features: model.from_features(features))

    def upper_bound(name):
        if not upper_bounds:
            upper_bounds.update(reconstruction_errors(model, test, kept=test_images)[1])
        return upper_bounds[name][:test_images], None

    def drawn(mode, domain):
        found = model.sample(samples, seed, mode, domain)
        return found.images, found.index

    def baseline(unfitted):
        if not known:
            rows = data.train.images[chosen[:FEATURE_IMAGES]]
            known.append(map_batches(model.to_features, rows))
        (features,) = known
        fitted = unfitted().fit(features.reshape(len(features), -1))
        # Decode block by block, because all sampled features would need much memory.
        drawn = (block.reshape(-1, *features.shape[1:]) for block in fitted.blocks(samples, seed))
        return np.concatenate([map_batches(from_features, block) for block in drawn]), None

    return {
        "real": lambda: (data.train.images[chosen[:samples]], None),
        **{name: lambda name=name: upper_bound(name) for name in model.upper_bounds},
        **{name: lambda pair=pair: drawn(*pair) for name, pair in draws(model).items()},
        **{name: lambda make=make: baseline(make) for name, make in baselines.items()},
    }


def draws(model):
    """Return {name: (mode, domain)} of all ways to draw, named by domain or else by mode."""
    found = {}
    for mode, about in model.modes.items():
        # The domain nearest to the training data comes first.
        for domain in reversed(about.domains or (None,)):
            name = domain or mode
            found[f"{mode}_{name}" if name in found else name] = (mode, domain)
    return found


def nearest_to_training(model):
    """Return the name of each mode's draws that lie nearest to the training data."""
    first = {}
    for name, (mode, _) in draws(model).items():
        first.setdefault(mode, name)
    return tuple(first.values())


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
    metrics = {
        "energy_gap": float(np.mean(energies[1].astype("float64") - energies[0])),
        "auc": area_under_curve(*energies),
        "negatives_real": negative_share(_directions(test), directions),
    }
    for name, (mode, domain) in draws(model).items() if samples else ():
        drawn = model.draw(samples, seed, mode, domain)
        x = map_batches(model.decode_visible, tuple(map(np.asarray, whole(drawn))))
        metrics[f"negatives_{name}"] = negative_share(_directions(x), directions)
    return metrics


def area_under_curve(low, high):
    """Return the probability that one of `low` is below one of `high`, with ties as half."""
    ordered = np.sort(low)
    below = np.searchsorted(ordered, high, "left").sum()
    upto = np.searchsorted(ordered, high, "right").sum()
    return float((below + upto) / (2 * len(low) * len(high)))


def negative_share(directions, training):
    """Return the share of directions (N, K) nearer to the negative of a training image."""
    cosines = (part @ training.T for part in chunks(directions, 256))
    return float(np.mean(np.concatenate([-c.min(axis=1) > c.max(axis=1) for c in cosines])))


def _directions(x):
    flat = x.reshape(len(x), -1)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-30)
