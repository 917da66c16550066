"""Scikit-learn's handwritten digits, available without network or files."""

import numpy as np

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.ordering import epoch_order
from keras_capsule_poe.data.pixels import fit_images, floats_to_bytes

TRAINING_IMAGES = 1500
BRIGHTEST = 16


def load_digits(options):
    """Load the training and test digits of 8x8 pixels, enlarged to 28x28."""
    from sklearn import datasets

    options.refuse(
        "the data set 'digits'", "column", "data_dir", "manual_dir", "grey", "skip_broken", "store"
    )
    digits = datasets.load_digits()
    images = floats_to_bytes(digits.images / BRIGHTEST, "digits")[..., np.newaxis]
    # Shuffled, because the data are sorted by writer. The seed is fixed, so that test metrics
    # of different training seeds are comparable.
    order = epoch_order(len(images), seed=0, epoch=0)
    names = tuple(str(name) for name in digits.target_names)

    def part(index):
        fitted = fit_images(images[index], options.image_size or (28, 28))
        return ImageSet(fitted, digits.target[index].astype(np.int64), names, "digits")

    train = order[:TRAINING_IMAGES][: options.limit]
    return ImageData(part(train), part(order[TRAINING_IMAGES:]))
