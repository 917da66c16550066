"""How well a classifier names images of viewpoints that it was trained on, and of others."""

from keras_capsule_poe.evaluation.accuracy import error_of
from keras_capsule_poe.evaluation.classified import are_right


def has_views(images):
    """Whether it is known of the images of an `ImageSet` which are of novel viewpoints.

    Examples:

    >>> import numpy as np
    >>> from keras_capsule_poe.data import ImageSet
    >>> has_views(ImageSet(np.zeros((4, 2, 2, 1), "uint8")))
    False
    """
    return "novel" in images.extras


def view_figures(found, images):
    """The error on familiar and on novel viewpoints, each by itself.

    Networks are compared on the novel ones where they are equally good on the familiar ones.

    Args:
        found: dict of `classified`, what a classifier says of the images.
        images: `ImageSet` with labels, and the extra `novel` of `split_views`.

    Returns:
        dict: `familiar` and `novel`, of those that there are, each with the `error_of` its images.

    Raises:
        BadUse: If there are no labels.

    Examples:

    >>> import numpy as np
    >>> from keras_capsule_poe.data import ImageSet
    >>> novel = {"novel": np.array([0, 1, 1, 1])}
    >>> images = ImageSet(np.zeros((4, 2, 2, 1), "uint8"), np.array([0, 0, 0, 1]), extras=novel)
    >>> views = view_figures({"classes": np.zeros(4, int)}, images)
    >>> views["familiar"]["error"], views["novel"]["wrong"], views["novel"]["images"]
    (0.0, 1, 3)

    Reference:

    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 5.1
    """
    is_right, is_novel = are_right(found, images.labels), images.extras["novel"].astype(bool)
    views = {"familiar": is_right[~is_novel], "novel": is_right[is_novel]}
    return {name: error_of(right) for name, right in views.items() if len(right)}
