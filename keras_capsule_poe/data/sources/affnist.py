"""The affNIST data set itself, from the MATLAB files that its authors offer."""

import re
from pathlib import Path

import numpy as np

from keras_capsule_poe.data.image_set import ImageSet
from keras_capsule_poe.errors import DataError, first_line

SIDE = 40
FIELDS = ("image", "label_int", "human_readable_transform")


def read_affnist(folder):
    """The transformed images of a folder: its `test.mat`, or else its batches `1.mat`, `2.mat`, ...

    Args:
        folder: path of a folder with files of `transformed/`, unpacked.

    Returns:
        `ImageSet` of `(N, 40, 40, 1)` images, whose extra `affine` (N, 6) float32 is
        `human_readable_transform` as the files have it.

    Raises:
        DataError: if there are no such files, or they hold something else.

    Reference:

    - [affNIST](https://www.cs.toronto.edu/~tijmen/affNIST/)
    """
    folder = Path(folder).expanduser()
    numbered = [path for path in folder.glob("*.mat") if re.fullmatch(r"\d+", path.stem)]
    files = [folder / "test.mat"] if (folder / "test.mat").is_file() else numbered
    if not files:
        raise DataError(
            f"`manual_dir` holds no affNIST: neither test.mat nor 1.mat, 2.mat and so on; leave "
            f"it out for images like them, made of MNIST. Received: {folder}.",
            mend="leave_out:manual_dir",
        )
    parts = [_read(path) for path in sorted(files, key=lambda path: (len(path.stem), path.stem))]
    images, labels, affine = map(np.concatenate, zip(*parts))
    return ImageSet(images, labels, tuple("0123456789"), "affNIST", {"affine": affine})


def _read(path):
    """Images (N, 40, 40, 1), labels (N,) and transformations (N, 6) of one file."""
    from scipy.io import loadmat

    try:
        # What is no MATLAB file, or half of one, fails in many ways.
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
    # A column an image, whose pixels lie row after row.
    pixels = np.ascontiguousarray(images.T).reshape(n, SIDE, SIDE, 1)
    return pixels, labels.ravel().astype(np.int64), affine.T.astype(np.float32)
