"""Images from a NumPy `.npz` archive."""

import numpy as np

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.ordering import hold_out
from keras_capsule_poe.data.pixels import check_memory, fit_images, floats_to_bytes
from keras_capsule_poe.errors import DataError, first_line, listing


def load_npz(path, options):
    """`x_train` and `x_test` (with `y_train`, `y_test`), or `images` (with `labels`)."""
    options.refuse("an .npz file", "data_dir", "manual_dir", "skip_broken")
    wanted = ("x_train", "y_train", "x_test", "y_test", "images", "labels", options.column)
    try:
        # Opened here because NumPy leaves the file of a damaged archive open.
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError("a single array; store it with numpy.savez")
            names = archive.files
            _check_size(path, archive, wanted)
            arrays = {name: archive[name] for name in names if name in wanted}
            if odd := [name for name in arrays if not isinstance(arrays[name], np.ndarray)]:
                raise ValueError(f"{odd[0]} is no array")
    except DataError:
        raise
    # NumPy lets through whatever a damaged archive makes its parsers raise.
    except Exception as error:
        raise DataError(
            f"{path} cannot be read as an .npz archive of plain arrays: it is damaged or of "
            f"another kind ({first_line(error)})."
        ) from error

    def read(images, labels):
        pixels = _pixels(path, images, arrays[images])
        return pixels, _labels(path, labels, arrays.get(labels), len(pixels))

    def image_set(pixels, labels):
        pixels = fit_images(pixels, options.image_size, options.grey)
        return ImageSet(pixels, labels, name=str(path))

    if options.column is None and {"x_train", "x_test"} <= arrays.keys():
        pixels, labels = read("x_train", "y_train")
        first = slice(options.limit)
        train = image_set(pixels[first], None if labels is None else labels[first])
        return ImageData(train, image_set(*read("x_test", "y_test")))

    images = options.column or ("x_train" if "x_train" in arrays else "images")
    if images not in arrays:
        asked = f"no array {options.column!r}" if options.column else "no array x_train or images"
        raise DataError(
            f"{path} holds {asked}; `column` must name the array of images. "
            f"Received: arrays {listing(names)}.",
            mend="column",
        )
    pixels, labels = read(images, "y_train" if images == "x_train" else "labels")
    train, test = hold_out(len(pixels), options.test_fraction, options.seed)

    def part(index):
        return image_set(pixels[index], None if labels is None else labels[index])

    return ImageData(part(train[: options.limit]), part(test))


def _check_size(path, archive, wanted):
    """A small file may hold zeros without end; how many is known before they are read."""
    members = {info.filename.removesuffix(".npy"): info for info in archive.zip.infolist()}
    sizes = [info.file_size for name, info in members.items() if name in wanted]
    check_memory(f"the arrays of {path}", sum(sizes))


def _pixels(path, name, array):
    """`array` as `(N, H, W, C)` uint8."""
    what = f"array {name!r} of {path}"
    received = f"Received: shape {array.shape} and dtype {array.dtype}."
    if array.ndim not in (3, 4):
        raise DataError(f"{what} must have shape (N, H, W) or (N, H, W, C). {received}")
    if array.ndim == 3:
        array = array[..., np.newaxis]
    if array.shape[-1] not in (1, 3):
        raise DataError(
            f"{what} must have 1 or 3 channels, in the last dimension: (N, H, W, C). {received}"
        )
    if not array.size:
        raise DataError(f"{what} is empty. {received}")
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        raise DataError(f"{what} must be uint8, or float with pixels in [0, 1]. {received}")
    return floats_to_bytes(array, what)


def _labels(path, name, array, n):
    """`array` as `(N,)` int64, or `None` where there is none."""
    if array is None:
        return None
    # Keras' own data sets store a column, (N, 1).
    if array.shape not in ((n,), (n, 1)) or array.dtype.kind not in "iu":
        raise DataError(
            f"array {name!r} of {path} must be integers of shape ({n},), one label an image. "
            f"Received: shape {array.shape} and dtype {array.dtype}."
        )
    if array.min() < 0 or array.max() > np.iinfo(np.int64).max:
        raise DataError(
            f"array {name!r} of {path} must number classes from 0 on. "
            f"Received: labels from {array.min()} to {array.max()}."
        )
    return array.reshape(n).astype(np.int64)
