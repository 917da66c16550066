"""What classifiers say of images, each asked once; every figure of them is made from that."""

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.winners import are_longest


def is_classifier(model):
    """Whether a model can be asked what a `CapsuleClassifier` can.

    Examples:

    >>> is_classifier(object())
    False
    """
    return callable(getattr(model, "classify", None))


def measure_of(model):
    """What a classifier's probabilities are, see `CapsuleClassifier.MEASURE`; if not said, lengths.

    Examples:

    >>> measure_of(object())
    'length'
    """
    return getattr(model, "MEASURE", "length")


def shows_several(images):
    """Whether each image of an `ImageSet` has several labels.

    Examples:

    >>> import numpy as np
    >>> from keras_capsule_poe.data import ImageSet
    >>> shows_several(ImageSet(np.zeros((4, 2, 2, 1), "uint8"), np.zeros((4, 2), "int64")))
    True
    """
    return images.labels is not None and images.labels.ndim > 1


def classified(model, images):
    """The classes of images, and how probable each is.

    Args:
        model: `CapsuleClassifier`.
        images: `ImageSet`.

    Returns:
        dict of arrays: `probabilities` (N, J), of capsules their lengths; `classes` (N,).

    Raises:
        BadUse: If the model names no classes.

    Examples:

    >>> import numpy as np
    >>> from keras_capsule_poe.data import ImageSet
    >>> class First:
    ...     def classify(self, images):
    ...         p = images[:, 0, :, 0]
    ...         return {"probabilities": p, "classes": ops.argmax(p, axis=-1)}
    >>> pixels = np.array([0, 255], np.uint8).reshape(1, 1, 2, 1)
    >>> classified(First(), ImageSet(pixels))["classes"].tolist()
    [1]
    """
    if not is_classifier(model):
        raise BadUse(f"Only models that name classes are compared. Received: {model.TITLE}")

    def answers(batch):
        found = model.classify(batch)
        return {name: found[name] for name in ("probabilities", "classes")}

    return map_batches(answers, images.images)


def are_right(found, labels):
    """Which images are named rightly: their class, or all of their classes.

    Args:
        found: dict of `classified`.
        labels: Integer array (N,); or (N, T), of which all must be among the T most probable.

    Returns:
        Boolean array (N,).

    Raises:
        BadUse: If there are no labels.

    Examples:

    >>> import numpy as np
    >>> p = np.array([[0.9, 0.8, 0.1]] * 2)
    >>> found = {"probabilities": p, "classes": p.argmax(axis=1)}
    >>> are_right(found, np.array([[1, 0], [0, 2]])).tolist()
    [True, False]
    """
    if labels is None:
        raise BadUse("Accuracy needs labels. Received: images without labels")
    if labels.ndim == 1:
        return found["classes"] == labels
    return are_longest(found["probabilities"], labels).all(axis=1)
