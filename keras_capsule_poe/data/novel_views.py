"""Training on familiar viewpoints and testing on novel ones."""

import dataclasses

import numpy as np

from keras_capsule_poe.data.image_set import ImageData
from keras_capsule_poe.errors import DataError, listing

# smallNORB labels of the training views: azimuths 300 to 40 degrees, or the 3 lowest elevations.
FAMILIAR = {
    "azimuth": ("label_azimuth", (15, 16, 17, 0, 1, 2)),
    "elevation": ("label_elevation", (0, 1, 2)),
}


def split_views(data: ImageData, by: str) -> ImageData:
    """Keep only training images from familiar viewpoints, and mark novel ones among test images.

    A third of the viewpoints is familiar. Compare networks on novel viewpoints at equal accuracy
    on familiar ones.

    Args:
        data: `ImageData` whose sets have the extras of smallNORB.
        by: `"azimuth"` or `"elevation"`.

    Returns:
        `ImageData`. Training and held-out images show familiar viewpoints. Test images are
        complete, and their extra `novel` (N,) int64 is 1 for novel viewpoints, else 0.

    Raises:
        DataError: If `by` is unknown, or the data have no such extra or no familiar viewpoint.

    Examples:

    >>> from keras_capsule_poe.data import ImageData, ImageSet
    >>> extras = {"label_azimuth": np.arange(18)}
    >>> views = ImageSet(np.zeros((18, 8, 8, 2), np.uint8), extras=extras)
    >>> split = split_views(ImageData(views, views), by="azimuth")
    >>> len(split.train), split.test.extras["novel"][:4].tolist()
    (6, [0, 0, 0, 1])

    Reference:

    - [Hinton et al., 2018](https://openreview.net/forum?id=HJWLfGWRb), Section 5.1
    """
    if by not in FAMILIAR:
        raise DataError(f"views are split by {' or '.join(FAMILIAR)}. Received: by={by!r}.")
    name, labels = FAMILIAR[by]
    for part in (data.train, data.test):
        if name not in part.extras:
            raise DataError(
                f"images must have the extra {name!r}, as 'viewpoints' and 'smallnorb' have. "
                f"Received: extras {listing(part.extras) or 'none'} of {part.name!r}.",
                hint="leave_out:split",
            )

    def familiar(part):
        return part and part.take(np.flatnonzero(np.isin(part.extras[name], labels)))

    train, held_out = familiar(data.train), familiar(data.held_out)
    if not len(train):
        raise DataError(f"no training image is of a familiar {by}. Received: {len(data.train)}.")
    novel = 1 - np.isin(data.test.extras[name], labels).astype(np.int64)
    test = dataclasses.replace(data.test, extras={**data.test.extras, "novel": novel})
    return dataclasses.replace(data, train=train, held_out=held_out, test=test)
