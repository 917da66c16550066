"""Classification of images by several crops of each."""

from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.accuracy import is_classifier
from keras_capsule_poe.evaluation.ensemble import vote

# Offsets (down, right) in pixels from the central window: none, then along both diagonals.
# The published code (google-research/capsule_em) uses these crops.
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
    """Return mean `probabilities` and `classes` over 13 crops (Hinton et al., 2018, Sec. 5)."""
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
