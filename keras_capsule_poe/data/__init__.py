"""Image sources, and streams of image batches for training.

TensorFlow, Pillow and scikit-learn are imported only by the functions that need them.
"""

from keras_capsule_poe.data.composed import ComposedSet
from keras_capsule_poe.data.image_set import ImageData, ImageSet, split_views
from keras_capsule_poe.data.loading import load_images
from keras_capsule_poe.data.preparation import read_image
from keras_capsule_poe.data.streams import (
    batches,
    epoch_order,
    gathered,
    sequential_batches,
    steps_per_epoch,
    stream,
)
from keras_capsule_poe.errors import DataError

__all__ = [
    "ComposedSet",
    "DataError",
    "ImageData",
    "ImageSet",
    "batches",
    "epoch_order",
    "gathered",
    "load_images",
    "read_image",
    "sequential_batches",
    "split_views",
    "steps_per_epoch",
    "stream",
]
