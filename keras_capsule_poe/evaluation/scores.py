"""Scores of images, such as draws of a model, by the evaluation classifier of a data set."""

from typing import Any

import numpy as np

from keras_capsule_poe.data.arrays import image_array
from keras_capsule_poe.data.image_set import ImageData
from keras_capsule_poe.errors import DataError
from keras_capsule_poe.evaluation.classifier import evaluation_classifier
from keras_capsule_poe.evaluation.feature_metrics import distances, squared_radii
from keras_capsule_poe.former_names import Metrics

CONFIDENT = 0.9


def has_classes(data):
    """Return True if images have one label each and training has two or more classes."""
    return (
        data.train.labels is not None
        and data.test.labels is not None
        and data.train.labels.ndim == data.test.labels.ndim == 1
        and len(np.unique(data.train.labels)) > 1
    )


def score_images(images: Any, data: ImageData, capsule: Any = None, cache: Any = None) -> Metrics:
    """Score images with the classifier that `capspoe evaluate` uses.

    The classifier is trained on the training images of the data set, once, and kept in a cache.
    The images are compared with as many test images. FID, KID, precision, recall, density and
    coverage depend on the number of images, so compare scores of equal numbers only.

    Args:
        images: Array (N, H, W) or (N, H, W, C), uint8 or floats in [0, 1], of the shape of those of
            `data`. Also the `Samples` of a model, or an `ImageSet`.
        data: `ImageData` with one label for each image, of two classes or more.
        capsule: Integers (N,), the capsule that drew each image, for `purity` and `class_coverage`.
            None: that of `Samples`, if each sample is of one capsule.
        cache: Folder of trained classifiers. None: the environment variable `CAPSPOE_CACHE`, or
            else `~/.cache/keras_capsule_poe`.

    Returns:
        dict of numbers:

        - `confident`: fraction of images with a class probability above 0.9.
        - `classes`: number of classes predicted for at least 1% of the images.
        - `label_entropy`: entropy of the mean class probabilities, in nats.
        - `FID`, `KID`: distances between features of these and of test images, zero if they are
          alike, and the standard error `KID_error`. Features of this classifier, not of Inception.
        - `precision`: fraction of images in the neighbourhood of some test image.
        - `recall`: fraction of test images in the neighbourhood of some image.
        - `density`: number of neighbourhoods of test images that hold an image, over the expected.
        - `coverage`: fraction of test images in whose neighbourhood some image lies.
        - `purity`: fraction of a capsule's images that are of its most frequent class.
        - `class_coverage`: number of classes that are the most frequent of some capsule.

        The last two need `capsule`. Fewer than four images have no distances: None.

    Raises:
        DataError: If the images, `data` or `capsule` have a wrong shape, type or range.

    Example:

    >>> import tempfile
    >>> from keras_capsule_poe.data import ImageData, ImageSet
    >>> pixels = np.random.default_rng(0).integers(256, size=(40, 8, 8, 1)).astype("uint8")
    >>> images = ImageSet(pixels, np.arange(40) % 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scores = score_images(pixels, ImageData(images, images), cache=folder)
    >>> scores["precision"], round(scores["FID"], 6)
    (1.0, 0.0)

    Reference:

    - [Heusel et al., 2017](https://arxiv.org/abs/1706.08500), FID
    - [Binkowski et al., 2018](https://arxiv.org/abs/1801.01401), KID
    - [Kynkaanniemi et al., 2019](https://arxiv.org/abs/1904.06991), precision and recall
    - [Naeem et al., 2020](https://arxiv.org/abs/2002.09797), density and coverage
    """
    if not isinstance(data, ImageData) or not has_classes(data):
        received = "images without one label each" if isinstance(data, ImageData) else repr(data)
        raise DataError(
            "`data` must be an `ImageData` with one label for each image, of two classes or more. "
            f"Received: {received:.80}. `keras_capsule_poe.data.load_images` gives one."
        )
    if hasattr(images, "images"):
        capsule = getattr(images, "index", None) if capsule is None else capsule
        images = images.images
    images = image_array(images, data.image_shape)
    if not len(images):
        raise DataError("`images` must be one image or more. Received: none.")
    if capsule is not None:
        capsule = np.asarray(capsule)
        if capsule.dtype.kind not in "iu" or capsule.shape != (len(images),):
            raise DataError(
                f"`capsule` must be {len(images)} integers, one for each image, or None. "
                f"Received: shape {capsule.shape}, dtype {capsule.dtype}."
            )
    return Scorer(data, len(images), cache)(images, capsule)


class Scorer:
    """Function of images, and of the capsules that drew them, that returns their scores.

    Args:
        data: `ImageData` with labels.
        most: int, number of test images that are compared with, if there are as many.
        cache: Folder of trained classifiers, or None.
    """

    def __init__(self, data, most, cache=None):
        self.classifier = evaluation_classifier(data.train, cache)
        self.test = data.test.head(most)
        self.real, _ = self.classifier(self.test.images)
        self.radii = squared_radii(self.real)

    def __call__(self, images, capsule=None):
        return scores_of(self.classifier(images), self.real, capsule, self.radii)


def scores_of(judged, real, capsule=None, radii=None):
    """Return the scores of images with features and class probabilities, `judged`.

    `real` are features of test images, whose `squared_radii` may be given.
    """
    features, classes = judged
    found = {**recognition(classes), **distances(real, features, radii)}
    return Metrics(found if capsule is None else {**found, **purity(classes, capsule)})


def recognition(classes):
    """Return confident fraction, class count and label entropy of probabilities (N, classes)."""
    share = np.bincount(classes.argmax(axis=-1), minlength=classes.shape[1]) / len(classes)
    mean = classes.mean(axis=0, dtype="float64")
    return {
        "confident": float(np.mean(classes.max(axis=-1) > CONFIDENT)),
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
        "class_coverage": len({int(count.argmax()) for count in counts}),
    }
