"""Nearest neighbours: how well they name a class, and whether samples are copies of training."""

import numpy as np
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from keras_capsule_poe.data.mapping import to_pixels

ROWS = 2_000


def neighbour_accuracy(x_train, y_train, x_test, y_test, neighbours=5):
    """Test accuracy of the most frequent class of the nearest training rows.

    Args:
        x_train: Array (N, K), standardised before distances are taken, as is `x_test`.
        y_train: Integer array (N,).
        x_test: Array (M, K).
        y_test: Integer array (M,).
        neighbours: int, at most.

    Returns:
        float in [0, 1].

    Examples:

    >>> x, y = np.array([[0.0], [0.1], [9.0], [9.1]]), np.array([0, 0, 1, 1])
    >>> neighbour_accuracy(x, y, x, y, neighbours=1)
    1.0
    """
    # In hundreds of dimensions search trees are slower than all distances.
    nearest = KNeighborsClassifier(min(neighbours, len(x_train)), algorithm="brute")
    return float(
        make_pipeline(StandardScaler(), nearest).fit(x_train, y_train).score(x_test, y_test)
    )


def nearest_training_distance(images, train_images):
    """Euclidean distance of each image to the nearest training image, over all pixels.

    Args:
        images: Array (M, H, W, C), uint8, or pixels in [0, 1].
        train_images: Array (N, H, W, C), uint8, or pixels in [0, 1].

    Returns:
        float32 array (M,) of distances, in units of full brightness; integer array (M,), which
        training image it is.

    Raises:
        ValueError: If either set is empty, or the shapes differ.

    Examples:

    >>> black, grey = np.zeros((1, 2, 2, 1)), np.full((1, 2, 2, 1), 0.5)
    >>> distance, _ = nearest_training_distance(grey, black)
    >>> distance.item()
    1.0
    """
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
    """How much nearer to training images samples lie than real images training never saw.

    Args:
        samples: Array (M, H, W, C), uint8, or pixels in [0, 1].
        usual: Array (L,), `nearest_training_distance` of real images that are not in training.
        train_images: Array (N, H, W, C).

    Returns:
        dict: `sample_distance` and `held_out_distance`, medians of `nearest_training_distance`;
        `relative_distance`, the former over the latter, far below one for copies, or None where
        that is zero; `copies`, the share of samples nearer to training than 99% of the held-out
        images, about 0.01 for real images.

    Raises:
        ValueError: If a set is empty, or the shapes differ.

    Examples:

    >>> images = np.eye(9).reshape(9, 3, 3, 1)
    >>> memorisation(images, np.ones(9), images)["copies"]
    1.0
    """
    near, _ = nearest_training_distance(samples, train_images)
    sample_distance, held_out_distance = float(np.median(near)), float(np.median(usual))
    return {
        "sample_distance": sample_distance,
        "held_out_distance": held_out_distance,
        "relative_distance": sample_distance / held_out_distance if held_out_distance else None,
        "copies": float(np.mean(near < np.quantile(usual, 0.01))),
    }


def _nearest(images, train_images):
    """Distance to and index of the nearest training image, a few of these at a time."""
    x, every = _rows(images), np.arange(len(images))
    least, index = np.full(len(x), np.inf, "float32"), np.zeros(len(x), int)
    for start in range(0, len(train_images), ROWS):
        y = _rows(train_images[start : start + ROWS])
        # |x - y|^2 without |x|^2, which changes no order.
        squares = np.square(y).sum(axis=1) - 2 * (x @ y.T)
        nearest = squares.argmin(axis=1)
        closer = squares[every, nearest] < least
        least[closer] = squares[every, nearest][closer]
        index[closer] = start + nearest[closer]
    # Of the difference itself: the expanded square of a copy would be all rounding.
    return np.linalg.norm(x - _rows(train_images[index]), axis=1), index


def _rows(images):
    """Images as float32 rows of pixels in [0, 1]."""
    pixels = to_pixels(images) if images.dtype == np.uint8 else images.astype("float32")
    return pixels.reshape(len(images), -1)
