"""Quality of samples, measured with the evaluation classifier."""

import numpy as np

from keras_capsule_poe.evaluation.baselines import VAE, baseline_set
from keras_capsule_poe.evaluation.classifier import evaluation_classifier
from keras_capsule_poe.evaluation.distances import (
    frechet_distance,
    kernel_distance,
    memorisation,
    nearest_training_distance,
    overlap,
    squared_radii,
)
from keras_capsule_poe.evaluation.metrics import silent
from keras_capsule_poe.evaluation.sources import image_sources, nearest_to_training

CONFIDENT = 0.9
DISTANCES = (
    "frechet",
    "kernel_distance",
    "kernel_distance_error",
    "precision",
    "recall",
    "density",
    "coverage",
)
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
    baselines="simple",
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
        dict: `classifier_accuracy` on the test images, and for each kind of image a dict of:

        - `recognised`: fraction of images whose largest probability is above 0.9.
        - `classes`: number of classes predicted for at least 1% of the images.
        - `label_entropy`: entropy of the mean class probabilities, in nats.
        - `frechet`, `kernel_distance`: the FID and KID formulas, the latter with its standard
          error `kernel_distance_error`.
        - `precision`, `recall`, `density`, `coverage`: overlap with the test images.
        - `purity`, `modal_classes`: capsule purity and class coverage. They exist if each image
          is of one capsule.
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

    Reference:

    - [Heusel et al., 2017](https://arxiv.org/abs/1706.08500), FID
    - [Binkowski et al., 2018](https://arxiv.org/abs/1801.01401), KID
    - [Kynkaanniemi et al., 2019](https://arxiv.org/abs/1904.06991), precision and recall
    - [Naeem et al., 2020](https://arxiv.org/abs/2002.09797), density and coverage
    """
    made = baseline_set(baselines, model, seed, vae_seconds)
    progress("training the evaluation classifier, or reading it")
    classifier = evaluation_classifier(data.train, cache)
    # Coverage and distances depend on the number of images, so it is the same for all kinds.
    samples = min(samples, len(data.test), len(data.train))
    test = data.test.head(samples)
    real, _ = classifier(test.images)
    balls = squared_radii(real)
    some = slice(None, MEMORISATION_IMAGES)
    usual, _ = nearest_training_distance(test.images[some], data.train.images)
    figures = {"classifier_accuracy": classifier.accuracy(test)}
    near = (*nearest_to_training(model), "gaussian_mixture", VAE)
    sources = image_sources(model, data, len(test), samples, seed, made, decoded, features)
    for number, (name, draw) in enumerate(sources.items(), start=1):
        progress(f"samples {number} of {len(sources)}, {name.replace('_', ' ')}")
        images, capsule = draw()
        features, classes = classifier(images)
        figures[name] = {**recognition(classes), **distances(real, features, balls)}
        if capsule is not None:
            figures[name] |= purity(classes, capsule)
        if name in near:
            figures[name] |= memorisation(images[some], usual, data.train.images)
    if VAE in made:
        figures |= {f"vae_{name}": value for name, value in made[VAE]().about.items()}
    return figures


def recognition(classes):
    """Return confident fraction, class count and label entropy of probabilities (N, classes)."""
    share = np.bincount(classes.argmax(axis=-1), minlength=classes.shape[1]) / len(classes)
    mean = classes.mean(axis=0, dtype="float64")
    return {
        "recognised": float(np.mean(classes.max(axis=-1) > CONFIDENT)),
        "classes": int(np.sum(share >= 0.01)),
        "label_entropy": float(-np.sum(mean * np.log(np.maximum(mean, 1e-30)))),
    }


def purity(classes, capsule):
    """Return the mean share of each capsule's main class, and the number of main classes."""
    named = classes.argmax(axis=-1)
    counts = [
        np.bincount(named[capsule == j], minlength=classes.shape[1]) for j in np.unique(capsule)
    ]
    return {
        "purity": float(np.mean([count.max() / count.sum() for count in counts])),
        "modal_classes": len({int(count.argmax()) for count in counts}),
    }


def distances(real, fake, of_real=None):
    """Return distances and `overlap` of two feature sets, or None values for tiny sets."""
    if min(len(real), len(fake)) < 4:
        return dict.fromkeys(DISTANCES)
    kernel, error = kernel_distance(real, fake)
    return {
        "frechet": frechet_distance(real, fake),
        "kernel_distance": kernel,
        "kernel_distance_error": error,
        **overlap(real, fake, of_real=of_real),
    }
