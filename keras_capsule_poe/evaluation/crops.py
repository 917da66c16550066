"""Classifiers that see a window of an image, asked about several windows of each."""

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.classified import is_classifier
from keras_capsule_poe.evaluation.ensemble import vote
from keras_capsule_poe.functions.compiled import compiled

# Pixels down and to the right from the window in the middle: none, then along both diagonals.
FARTHEST = 3
OFFSETS = (
    (0, 0),
    *(
        (down * pixels, right * pixels)
        for pixels in range(1, FARTHEST + 1)
        for down in (-1, 1)
        for right in (-1, 1)
    ),
)


def classified_crops(model, images):
    """The classes of images by 13 crops of each: the mean of the probabilities of all.

    Hinton et al. average over several crops. These are those of the code that was published for
    it: the window in the middle, which the model sees by itself, and that window moved by 1, 2
    and 3 pixels towards each corner.

    Args:
        model: `CapsuleClassifier` that sees a window of images, its `view`.
        images: `ImageSet`.

    Returns:
        dict of arrays, as `classified` gives: `probabilities` (N, J) and `classes` (N,).

    Raises:
        BadUse: If the model names no classes or sees whole images, or these are too small for
            the window to move.

    Examples:

    >>> import numpy as np
    >>> from keras_capsule_poe.data import ImageSet
    >>> class Left:
    ...     view = keras.layers.CenterCrop(2, 2, data_format="channels_last")
    ...     def classify(self, images):
    ...         p = images[:, 0, :, 0]
    ...         return {"probabilities": p, "classes": ops.argmax(p, axis=-1)}
    >>> pixels = np.zeros((1, 8, 8, 1), np.uint8)
    >>> pixels[:, :, :3] = 255
    >>> np.round(13 * classified_crops(Left(), ImageSet(pixels))["probabilities"]).tolist()
    [[6.0, 4.0]]

    Reference:

    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 5
    - [The published code](https://github.com/google-research/google-research/tree/master/capsule_em)
    """
    view = getattr(model, "view", None)
    if not is_classifier(model) or view is None:
        raise BadUse(
            "Crops are of models that name classes and see a window of an image. "
            f"Received: {model.TITLE}" + (" that sees all of it" if is_classifier(model) else "")
        )
    height, width = images.image_shape[:2]
    rows, columns = height - view.height, width - view.width
    if min(rows, columns) < 2 * FARTHEST:
        raise BadUse(
            f"Images must be {2 * FARTHEST} pixels larger than the window that moves in them. "
            f"Received: {height}x{width} and a window of {view.height}x{view.width}"
        )
    ask = compiled(lambda crops: model.classify(crops)["probabilities"])
    members = {}
    for offset in OFFSETS:
        top, left = (room // 2 + by for room, by in zip((rows, columns), offset))
        crops = images.images[:, top : top + view.height, left : left + view.width]
        members[offset] = {"probabilities": map_batches(ask, crops)}
    return vote(members)
