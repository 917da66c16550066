"""`load_images`: one door to all sources of images."""

import os
from pathlib import Path

from keras_capsule_poe.data.options import Options
from keras_capsule_poe.data.sources.composed import find_composed, load_composed
from keras_capsule_poe.data.sources.digits import load_digits
from keras_capsule_poe.data.sources.image_folder import load_folder
from keras_capsule_poe.data.sources.npz import load_npz
from keras_capsule_poe.data.sources.tfds_images import load_tfds
from keras_capsule_poe.data.sources.tfds_prepare import is_known
from keras_capsule_poe.data.sources.viewpoints import load_viewpoints
from keras_capsule_poe.errors import DataError

# What needs no files.
GENERATED = {"digits": load_digits, "viewpoints": load_viewpoints}


def load_images(
    dataset,
    *,
    data_dir=None,
    manual_dir=None,
    column=None,
    image_size=None,
    grey=False,
    limit=None,
    skip_broken=False,
    test_fraction=0.1,
    seed=0,
    smallest=None,
    store=None,
    report=None,
):
    """Reads images to train on and images to test with.

    Args:
        dataset: one of
            - `"digits"`: the 1797 digits of scikit-learn, enlarged from 8x8 to 28x28;
            - `"viewpoints"`: 24,300 stereo pairs, `(N, 48, 48, 2)`, of five kinds of solids from
              all sides, and as many of other solids to test with, with smallNORB's extras;
            - a folder of image files, searched recursively, hidden ones left out. If every
              image lies in a sub-folder, the first-level sub-folders are the classes. If
              images lie in the sub-folders `train` and `test` (or `validation`, or `val`),
              these are the split and others are left out. Links are followed. Of animations,
              the first picture counts;
            - an `.npz` file with `x_train` and `x_test` (`y_train` and `y_test`), with
              `images` (`labels`), or with the array that `column` names: uint8, or floats
              in [0, 1], of shape `(N, H, W)` or `(N, H, W, C)`;
            - a tensorflow-datasets name, `NAME[/CONFIG][:VERSION]`. `"train"` and `"test"`,
              or `"validation"`, are the split. `smallnorb` gives stereo pairs, `(N, 96, 96, 2)`,
              and its viewpoints as extras; `emnist` stands upright;
            - such a name, or `digits`, with an ending: training images are composed anew each
              epoch, test images are fixed, and no image is in both. `NAME_multi`: two overlapping
              ones of different classes (`labels` (N, 2); the extra `targets` has each alone);
              `NAME_translated`: one, moved on a larger canvas (extra `shifts`); `NAME_affine`:
              that to train on, and to test with one under an affine map (extra `affine`, its six
              numbers). `multimnist` and `affnist` are those of MNIST; the latter's test images
              are affNIST's own where `manual_dir` holds them, as `test.mat` or `1.mat`, `2.mat`
              and so on, and else affNIST-like. `NAME_multi/shift=6,copies=10`: pixels that
              training images move at most, and test images made of each one.

            A plain word is a tensorflow-datasets name first and a folder second; `./WORD` is
            always a path.
        data_dir: where tensorflow-datasets keeps prepared data; for its data sets only.
            Default: the environment variable TFDS_DATA_DIR, else its own default.
        manual_dir: folder with archives downloaded by hand, for such data not yet prepared, or
            with the files of affNIST.
        column: name of the column or array of images. Default: the only one.
        image_size: int or `(height, width)`, in pixels. Resizes each image to exactly this
            size, whatever its proportions. Default: leave the size as it is. Not for images
            that are composed.
        grey: whether to turn RGB images grey. A folder of nothing but grey images is grey
            anyway.
        limit: use the first `limit` training images only.
        skip_broken: whether to leave files of a folder that cannot be read out, instead of
            failing; `ImageData.skipped` names them.
        test_fraction: share of the images to test with, where the data have no such split.
            The choice depends on the number of images and `seed` only.
        seed: integer of at least 0.
        smallest: least height and width in pixels that the model can take, or `None`.
        store: folder to keep the images of a folder, an `.npz` or a tensorflow-datasets name in,
            as rows on disk; see `data.store.open_store`. They are written once, all of them
            whatever the `limit`, and then read from there instead of being held in memory; the
            images are the same. Default: hold them in memory.
        report: function of a line, told how writing a store goes. Default: nobody is.

    Returns:
        `ImageData` with uint8 images in [0, 255]; from a store, memory-mapped, see `RowView`.

    Raises:
        DataError: if the data cannot be found or used, or an argument is unsound.
        RunFailed: if the store cannot be written.

    Examples:

    >>> data = load_images("digits", limit=100)
    >>> data.train.images.shape, data.train.images.dtype
    ((100, 28, 28, 1), dtype('uint8'))
    """
    options = Options(
        data_dir=data_dir,
        manual_dir=manual_dir,
        column=column,
        image_size=image_size,
        grey=grey,
        limit=limit,
        skip_broken=skip_broken,
        test_fraction=test_fraction,
        seed=seed,
        smallest=smallest,
        store=store,
        report=report,
    )
    if not isinstance(dataset, (str, os.PathLike)) or not str(dataset):
        raise DataError(f"`dataset` must be a name or a path. Received: {dataset!r}.")
    data = _reader(dataset)(options)
    options.check_size(*data.image_shape[:2])
    return data


def _reader(dataset):
    """A function of `Options` that reads `dataset`."""
    name = os.fspath(dataset)
    if name in GENERATED:
        return GENERATED[name]
    composed = None if isinstance(dataset, os.PathLike) else find_composed(name)
    if composed and (composed.base in GENERATED or is_known(composed.base)):

        def load(base, options):
            return _reader(base)(options)

        return lambda options: load_composed(composed, load, options)
    path = Path(name).expanduser()
    # `mnist_corrupted/fog` is a data set, so a slash alone does not make a path.
    is_path = isinstance(dataset, os.PathLike) or name.startswith((".", "~", os.sep))
    if path.is_dir() and (is_path or not is_known(name)):
        return lambda options: load_folder(path, options)
    if path.is_file() and path.suffix.lower() == ".npz":
        return lambda options: load_npz(path, options)
    if path.is_file():
        raise DataError(f"`dataset` must be a folder or an .npz file. Received: file {dataset}.")
    if is_path or path.suffix.lower() == ".npz":
        raise DataError(f"`dataset`: there is no such folder or file. Received: {dataset}.")
    return lambda options: load_tfds(name, options)
