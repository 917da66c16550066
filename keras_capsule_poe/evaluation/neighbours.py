"""Nearest neighbours: classification accuracy, and samples that copy training images."""

import numpy as np
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from keras_capsule_poe.data.mapping import to_pixels

ROWS = 2_000


def neighbour_accuracy(x_train, y_train, x_test, y_test, neighbours=5):
    """Return the test accuracy of nearest neighbours on standardised inputs."""
    # In hundreds of dimensions, search trees are slower than brute force.
    nearest = KNeighborsClassifier(min(neighbours, len(x_train)), algorithm="brute")
    return float(
        make_pipeline(StandardScaler(), nearest).fit(x_train, y_train).score(x_test, y_test)
    )


def nearest_training_distance(images, train_images):
    """Return the distance (M,) to the nearest training image, and its index (M,)."""
    images = np.asarray(images)
    if images.shape[1:] != train_images.shape[1:] or not min(len(images), len(train_images)):
        raise ValueError(
            "`images` and `train_images` must be one or more images of one shape. "
            f"Received: shapes {images.shape} and {train_images.shape}"
        )
    parts = [_nearest(images[i : i + ROWS], train_images) for i in range(0, len(images), ROWS)]
    distance, index = (np.concatenate(found) for found in zip(*parts))
    return distance, index


def memorisation(samples, usual, train_images):
    """Compare distances to training images of samples and of held-out images."""
    near, _ = nearest_training_distance(samples, train_images)
    sample_distance, held_out_distance = float(np.median(near)), float(np.median(usual))
    return {
        "sample_distance": sample_distance,
        "held_out_distance": held_out_distance,
        "relative_distance": sample_distance / held_out_distance if held_out_distance else None,
        # About 0.01 for real images.
        "copies": float(np.mean(near < np.quantile(usual, 0.01))),
    }


def _nearest(images, train_images):
    """Return distance and index of the nearest training image, a block of these at a time."""
    x, every = _rows(images), np.arange(len(images))
    least, index = np.full(len(x), np.inf, "float32"), np.zeros(len(x), int)
    for start in range(0, len(train_images), ROWS):
        y = _rows(train_images[start : start + ROWS])
        # |x - y|^2 without |x|^2, which does not change the order.
        squares = np.square(y).sum(axis=1) - 2 * (x @ y.T)
        nearest = squares.argmin(axis=1)
        closer = squares[every, nearest] < least
        least[closer] = squares[every, nearest][closer]
        index[closer] = start + nearest[closer]
    # Not from the expanded square, which is only rounding error for a copy.
    return np.linalg.norm(x - _rows(train_images[index]), axis=1), index


def _rows(images):
    """Return images as float32 rows of pixels in [0, 1]."""
    pixels = to_pixels(images) if images.dtype == np.uint8 else images.astype("float32")
    return pixels.reshape(len(images), -1)
