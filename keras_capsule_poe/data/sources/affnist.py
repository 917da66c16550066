"""The original affNIST test images, from MATLAB files."""

import re

import numpy as np

from keras_capsule_poe.data.image_set import ImageSet
from keras_capsule_poe.errors import DataError, first_line
from keras_capsule_poe.io.atomic import user_path

SIDE = 40
FIELDS = ("image", "label_int", "human_readable_transform")


def read_affnist(folder):
    """Read a folder's `test.mat`, else its batches `1.mat`, `2.mat`, ..., as an `ImageSet`."""
    folder = user_path(folder)
    numbered = [path for path in folder.glob("*.mat") if re.fullmatch(r"\d+", path.stem)]
    files = [folder / "test.mat"] if (folder / "test.mat").is_file() else numbered
    if not files:
        raise DataError(
            f"`manual_dir` holds no affNIST: neither test.mat nor 1.mat, 2.mat and so on; leave "
            f"it out for images like them, made of MNIST. Received: {folder}.",
            hint="leave_out:manual_dir",
        )
    parts = [_read(path) for path in sorted(files, key=lambda path: (len(path.stem), path.stem))]
    images, labels, affine = map(np.concatenate, zip(*parts))
    return ImageSet(images, labels, tuple("0123456789"), "affNIST", {"affine": affine})


def _read(path):
    """Read images (N, 40, 40, 1), labels (N,) and transformations (N, 6) of one file."""
    from scipy.io import loadmat

    try:
        # Invalid and truncated files raise many kinds of errors.
        data = loadmat(path, variable_names=["affNISTdata"])["affNISTdata"]
        images, labels, affine = (np.asarray(data[name][0, 0]) for name in FIELDS)
        n = labels.size
        sound = images.shape == (SIDE * SIDE, n) and images.dtype == np.uint8
        sound = sound and affine.shape == (6, n) and n > 0
        received = f"images {images.shape} {images.dtype}, labels {labels.shape}"
    except Exception as error:
        sound, received = False, first_line(error)
    if not sound:
        raise DataError(
            f"{path} must be a file of affNIST: a struct affNISTdata with {', '.join(FIELDS)} of "
            f"1600, 1 and 6 rows; download it again. Received: {received}."
        )
    # Each column is an image in row-major order.
    pixels = np.ascontiguousarray(images.T).reshape(n, SIDE, SIDE, 1)
    return pixels, labels.ravel().astype(np.int64), affine.T.astype(np.float32)
