"""How good samples are, as a classifier of the data set sees them."""

import numpy as np

from keras_capsule_poe.evaluation.classifier import train_judge
from keras_capsule_poe.evaluation.control_sets import VAE, control_set
from keras_capsule_poe.evaluation.distances import frechet_distance, kernel_distance
from keras_capsule_poe.evaluation.neighbours import memorisation, nearest_training_distance
from keras_capsule_poe.evaluation.overlap import overlap, squared_radii
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
# Enough samples for a median and a small quantile; each is compared with all training images.
MEMORISATION_IMAGES = 2_000


def sample_figures(
    model,
    data,
    samples=10_000,
    seed=0,
    cache=None,
    vae_seconds=0,
    decoded=None,
    features=None,
    controls="plain",
):
    """Figures of everything that can stand in for a real image.

    Args:
        model: `GenerativeModel`.
        data: `ImageData` with labels.
        samples: int, how many of each kind, and how many test images; at most those there are.
        seed: int.
        cache: Folder of the classifier, see `train_judge`.
        vae_seconds: See `control_set`.
        decoded, features: See `image_sources`.
        controls: str, which `control_set` to compare with.

    Returns:
        dict: `classifier_accuracy` on the test images; and for each of `image_sources` a dict of
        `recognition`, `distances` to the test images, where each image is of one capsule
        `purity`, and of draws nearest to training `memorisation`. Of a variational autoencoder
        also `vae_parameters`, `vae_seconds` and `vae_steps`.

    Raises:
        ValueError: See `control_set`.

    Examples:

    >>> import tempfile
    >>> from keras_capsule_poe.data import ImageData, ImageSet
    >>> class Half:
    ...     CEILINGS, MODES, capsules, dim = ("half",), {}, 1, 4
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
    ...     list(sample_figures(Half(), ImageData(images, images), cache=folder))[:3]
    ['classifier_accuracy', 'real', 'half']
    """
    made = control_set(controls, model, seed, vae_seconds)
    judge = train_judge(data.train, cache)
    # Coverage and distances depend on how many are compared: as many of each kind.
    samples = min(samples, len(data.test), len(data.train))
    test = data.test.head(samples)
    real, _ = judge.judge(test.images)
    balls = squared_radii(real)
    some = slice(None, MEMORISATION_IMAGES)
    usual, _ = nearest_training_distance(test.images[some], data.train.images)
    figures = {"classifier_accuracy": judge.accuracy(test)}
    near = (*nearest_to_training(model), "gaussian_mixture", VAE)
    sources = image_sources(model, data, len(test), samples, seed, made, decoded, features)
    for name, draw in sources.items():
        images, capsule = draw()
        features, classes = judge.judge(images)
        figures[name] = {**recognition(classes), **distances(real, features, balls)}
        if capsule is not None:
            figures[name] |= purity(classes, capsule)
        if name in near:
            figures[name] |= memorisation(images[some], usual, data.train.images)
    if VAE in made:
        figures |= {f"vae_{name}": value for name, value in made[VAE]().about.items()}
    return figures


def recognition(classes):
    """What class probabilities say of a set of images.

    Args:
        classes: Array (N, classes).

    Returns:
        dict: `recognised`, the share whose highest probability is over 0.9; `classes`, how
        many have 1% of the images or more; `label_entropy` of the mean, nats.

    Examples:

    >>> recognition(np.array([[0.95, 0.05], [0.6, 0.4]]))["recognised"]
    0.5
    """
    share = np.bincount(classes.argmax(axis=-1), minlength=classes.shape[1]) / len(classes)
    mean = classes.mean(axis=0, dtype="float64")
    return {
        "recognised": float(np.mean(classes.max(axis=-1) > CONFIDENT)),
        "classes": int(np.sum(share >= 0.01)),
        "label_entropy": float(-np.sum(mean * np.log(np.maximum(mean, 1e-30)))),
    }


def purity(classes, capsule):
    """How far each capsule shows one class.

    Args:
        classes: Array (N, classes), probabilities.
        capsule: Integer array (N,).

    Returns:
        dict: `purity`, the mean over capsules of the share of their most frequent class;
        `modal_classes`, how many different classes are a capsule's most frequent one.

    Examples:

    >>> purity(np.eye(2)[[0, 0, 1, 1]], np.array([3, 3, 3, 5]))["modal_classes"]
    2
    """
    named = classes.argmax(axis=-1)
    counts = [
        np.bincount(named[capsule == j], minlength=classes.shape[1]) for j in np.unique(capsule)
    ]
    return {
        "purity": float(np.mean([count.max() / count.sum() for count in counts])),
        "modal_classes": len({int(count.argmax()) for count in counts}),
    }


def distances(real, fake, of_real=None):
    """Distances between two sets of features (N, K) and (M, K), and their `overlap`.

    Args:
        real: Array (N, K).
        fake: Array (M, K).
        of_real: See `overlap`.

    Returns:
        dict of float, or of `None` where a set has fewer than four.

    Examples:

    >>> distances(np.eye(4), np.eye(4))["coverage"]
    1.0
    """
    if min(len(real), len(fake)) < 4:
        return dict.fromkeys(DISTANCES)
    kernel, error = kernel_distance(real, fake)
    return {
        "frechet": frechet_distance(real, fake),
        "kernel_distance": kernel,
        "kernel_distance_error": error,
        **overlap(real, fake, of_real=of_real),
    }
