"""Options common to all image sources."""

import dataclasses
import numbers
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from keras_capsule_poe.data.archives import load_array, load_arrays, load_npz
from keras_capsule_poe.data.array_names import is_array
from keras_capsule_poe.data.composed import find_composed, load_composed
from keras_capsule_poe.data.folders import arrays_alone, load_folder
from keras_capsule_poe.data.hub import is_hub, is_saved, load_hub, parquet_files
from keras_capsule_poe.data.image_files import BACKGROUNDS, extensions
from keras_capsule_poe.data.image_set import ImageData, ImageSet, notes_on
from keras_capsule_poe.data.labels import DATA_VERSION
from keras_capsule_poe.data.listing import TABLES, Entries
from keras_capsule_poe.data.pixels import fit_images, floats_to_bytes, size_given
from keras_capsule_poe.data.streams import epoch_order
from keras_capsule_poe.data.tfds import is_known, load_tfds
from keras_capsule_poe.data.trees import Archive, Folder
from keras_capsule_poe.data.viewpoints import load_viewpoints
from keras_capsule_poe.errors import DataError
from keras_capsule_poe.io.atomic import user_path


@dataclasses.dataclass(frozen=True)
class Options:
    """Validated keyword arguments of `load_images`; an int `image_size` becomes a pair."""

    data_dir: str | os.PathLike | None = None
    manual_dir: str | os.PathLike | None = None
    column: str | None = None
    image_size: int | tuple[int, int] | None = None
    grey: bool = False
    limit: int | None = None
    skip_broken: bool = False
    test_fraction: float = 0.1
    seed: int = 0
    smallest: int | None = None
    store: str | os.PathLike | None = None
    train_dir: str | os.PathLike | None = None
    test_dir: str | os.PathLike | None = None
    background: str | None = None
    max_value: int | None = None
    groups: str | None = None
    labels: str | os.PathLike | None = None
    label_column: str | None = None
    data_version: int = DATA_VERSION
    report: Callable | None = None

    # Options of image files alone.
    of_folders: ClassVar = ("train_dir", "test_dir", "background", "max_value", "labels")

    def __post_init__(self):
        for name, least in (("limit", 1), ("smallest", 1), ("max_value", 1), ("seed", 0)):
            value = getattr(self, name)
            is_default = value is None and name != "seed"
            rule = f"an integer of at least {least}{'' if name == 'seed' else ', or None'}"
            self._require(is_default or (_is_int(value) and value >= least), name, rule)
        for name in ("grey", "skip_broken"):
            self._require(getattr(self, name) in (True, False), name, "True or False")
        is_known = self.background in (None, *BACKGROUNDS)
        self._require(is_known, "background", f"{' or '.join(BACKGROUNDS)}, or None")
        is_known = self.groups is None or isinstance(self.groups, str) and self.groups
        self._require(is_known, "groups", "a word or a regular expression, or None")
        is_known = _is_int(self.data_version) and 1 <= self.data_version <= DATA_VERSION
        self._require(is_known, "data_version", f"an integer from 1 to {DATA_VERSION}")
        fraction = self.test_fraction
        is_inside = isinstance(fraction, numbers.Real) and 0 < fraction < 1
        self._require(is_inside, "test_fraction", "between 0 and 1, both excluded")
        if self.image_size is not None:
            # The only way to assign in a frozen dataclass.
            object.__setattr__(self, "image_size", size_given(self.image_size))
            self.check_size(*self.image_size)

    def _require(self, is_right, name, rule):
        if not is_right:
            value = getattr(self, name)
            raise DataError(f"`{name}` must be {rule}. Received: {name}={value!r:.80}.")

    def drawn_by(self, labels, images):
        """Return the labels (N,) by whose classes test images are drawn, or N zeros."""
        has_classes = labels is not None and labels.ndim == 1 and self.data_version > 1
        return labels if has_classes else np.zeros(images, np.int64)

    def refuse(self, source, *names):
        """Raise `DataError` if an option in `names`, which `source` does not support, is set."""
        for name in names:
            value = getattr(self, name)
            if value not in (None, False):
                shown = value if value is True else repr(str(value))
                raise DataError(
                    f"`{name}` has no meaning for {source}. Received: {name}={shown}.",
                    hint=f"leave_out:{name}",
                )

    def check_size(self, height, width):
        """Raise `DataError` for images smaller than `smallest`."""
        if self.smallest is not None and min(height, width) < self.smallest:
            raise DataError(
                f"images must be at least {self.smallest}x{self.smallest} pixels for this model. "
                f"Received: {height}x{width}.",
                hint="image_size",
            )


def _is_int(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _load_digits(options):
    """Load scikit-learn's training and test digits of 8x8 pixels, enlarged to 28x28."""
    from sklearn import datasets

    digits = datasets.load_digits()
    images = floats_to_bytes(digits.images / 16, "digits")[..., np.newaxis]
    # Shuffled, because the data are sorted by writer. The seed is fixed, so that test metrics
    # of different training seeds are comparable.
    order = epoch_order(len(images), seed=0, epoch=0)
    names = tuple(str(name) for name in digits.target_names)

    def part(index):
        fitted = fit_images(images[index], options.image_size or (28, 28))
        return ImageSet(fitted, digits.target[index].astype(np.int64), names, "digits")

    return ImageData(part(order[:1500][: options.limit]), part(order[1500:]))


# Sources without files, and the options that they do not have.
GENERATED = {"digits": _load_digits, "viewpoints": load_viewpoints}
_OF_FILES = (
    *("column", "data_dir", "manual_dir", "grey", "skip_broken", "store", "groups"),
    "label_column",
)


def load_images(
    dataset: Any,
    *,
    data_dir: str | Path | None = None,
    manual_dir: str | Path | None = None,
    column: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    grey: bool = False,
    limit: int | None = None,
    skip_broken: bool = False,
    test_fraction: float = 0.1,
    seed: int = 0,
    smallest: int | None = None,
    store: str | Path | None = None,
    train_dir: str | Path | None = None,
    test_dir: str | Path | None = None,
    background: str | None = None,
    max_value: int | None = None,
    groups: str | None = None,
    labels: str | Path | None = None,
    label_column: str | None = None,
    data_version: int = DATA_VERSION,
    report: Callable[[str], Any] | None = None,
) -> ImageData:
    """Load training and test images.

    `dataset` is one of:

    - `"digits"`: 1797 digits of scikit-learn, enlarged from 8x8 to 28x28.
    - `"viewpoints"`: rendered stereo pairs (N, 48, 48, 2) of five kinds of solids, 24,300 for
      training and as many of other solids for testing. It has the extras of smallNORB.
    - A folder of image files, searched recursively, in any format that Pillow reads, or a `.zip`
      file of such a folder. Hidden files, folders that a system makes, model folders and masks
      beside images are left out, and each linked folder is read once. Every page of a TIFF or GIF
      file is an image. Sub-folders with usual names such as `train`, `Testing`, `seg_val` or `dev`
      define the split; validation images become `held_out` if there are test images, too.
      First-level sub-folders are the classes, unless an image lies outside them or a file of
      `labels` is given. A file of several pages is a data set, too.
    - An `.npz` file; an `.npy` or an idx file (`train-images-idx3-ubyte.gz`) and those that belong
      to it in the same folder; or a folder or `.zip` file of such files. Arrays have usual names:
      `x_train`, `train_images`, `X` or `images`, with labels `y_train`, `train_labels`, `y`,
      `labels` or `target`, and the same for `test` and `val`. `column` and `label_column` name
      others. Images (N, H, W) or (N, H, W, C) are uint8, or floats in [0, 1]. Labels are integers
      or strings (N,), K of them (N, K), or rows of zeros and ones with one column a class. The
      labels that occur are numbered in their order and are the class names; the array
      `class_names` names the integers 0, 1, ...
    - A `Dataset` or a `DatasetDict` of the package `datasets`, a folder that its `save_to_disk`
      wrote, or a `.parquet` file or a folder of such files with a column of images. Needs the
      package `datasets`.
    - A tensorflow-datasets name, `NAME[/CONFIG][:VERSION]`. The test split is `test`, else
      `validation`. `smallnorb` gives stereo pairs (N, 96, 96, 2) with viewpoints as extras.
    - `digits`, `viewpoints` or a plain tensorflow-datasets name with a suffix. Training images
      are composed anew every epoch. Test images are composed once, from test images. `NAME_multi`
      overlaps two images of different classes: `labels` (N, 2), and the extra `targets` has each
      image alone. `NAME_translated` shifts images on a larger canvas (extra `shifts`).
      `NAME_affine` trains on shifted images and tests on affine maps (extra `affine`). Append
      `/shift=6,copies=10` for the largest shift in pixels and the number of test images made
      from each original.
    - `"multimnist"` (`mnist_multi`), or `"affnist"` (`mnist_affine`). The latter tests on the
      original affNIST files if `manual_dir` is given.

    Without a split in a folder or archive, test images are drawn at random, from each class its
    share. `groups` keeps images together that show the same object. Pages of a file stay together.
    Whatever is left out is counted and named in `ImageData.notes`.

    A plain word is first looked up in tensorflow-datasets, then as a folder. `./WORD` is a path.

    Args:
        dataset: str, path or object, see above.
        data_dir: path of the prepared tensorflow-datasets data. Default: the environment variable
            TFDS_DATA_DIR, else the default of tensorflow-datasets.
        manual_dir: path of archives downloaded by hand, or of affNIST's `test.mat` or `1.mat`,
            `2.mat`, ...
        column: str, name of the image column or array. Default: the only one.
        image_size: int or (height, width) in pixels. Resizes without keeping the aspect ratio.
            Not available for composed images.
        grey: bool, converts RGB images to grey. Folders of grey images are always grey.
        limit: int, number of training images to use. Default: all.
        skip_broken: bool, skips unreadable files of a folder and lists them in
            `ImageData.skipped`, instead of failing.
        test_fraction: float in (0, 1), fraction of test images if the data have no split.
        seed: non-negative int. Determines a random split and the order of a folder's images.
        smallest: int, smallest height and width in pixels that the model accepts, or `None`.
        store: path of a folder that keeps the images as rows on disk. All images are written once
            and then memory-mapped. Available for all but `digits` and `viewpoints`. images
            are loaded into memory.
        train_dir: path of a folder of training images, if `dataset` is a folder whose sub-folders
            do not say which images are for training.
        test_dir: path of a folder of test images; needs `train_dir`.
        background: `"black"` or `"white"`, the colour behind transparent pixels of image files.
            Default: the one on which a sample of the images has more contrast.
        max_value: int, the value that is white in image files of more than 8 bits. Default: the
            largest integer of as many bits as the values of a sample need, such as 4095. Floats in
            [0, 1] stay as they are.
        groups: str, images of one group are all for training, all held out or all for testing.
            Of a folder `"folder"`, where the first sub-folder of a class is a group, or a regular
            expression of paths such as `cat/case-017_3.png`: what its parentheses match is the
            group, `"(case-[0-9]+)"`, or else its whole match. Of an `.npz` file the name of an
            array of integers or strings (N,). Default: the array `groups` of an `.npz` file, or
            `groups_train` and `groups_test`, if they are there.
        labels: path of a CSV file with labels of the image files: a column of file names or paths,
            such as `filename`, and one of labels. It may be relative to the folder of images.
            Images without a label are left out.
        label_column: str, name of the column, array or feature of labels. Default: a usual name.
        data_version: int. 2 reads data as versions before 0.3 did: integer labels are numbered by
            their values, colours of 16 bits cut to their upper 8 bits, files have one page, arrays
            few usual names, and folders of a system are read. 1 also reads and splits folders and
            archives as versions before 0.2 did: `train` and `test` alone are splits, classes do not
            matter for a random split, transparent pixels are black and integers of 65535 white.
        report: function of a str, called with progress messages while a store is written.

    Returns:
        `ImageData` with uint8 images in [0, 255].

    Raises:
        DataError: If the data cannot be found or used, or an argument is invalid.
        RunFailed: If the store cannot be written.

    Examples:

    >>> data = load_images("digits", limit=100)
    >>> data.train.images.shape, data.train.images.dtype
    ((100, 28, 28, 1), dtype('uint8'))
    """
    given = locals()
    options = Options(**{field.name: given[field.name] for field in dataclasses.fields(Options)})
    if is_hub(dataset):
        data = load_hub(dataset, options)
    elif isinstance(dataset, (str, os.PathLike)) and str(dataset):
        data = _load(dataset, options)
    else:
        raise DataError(f"`dataset` must be a name or a path. Received: {dataset!r:.200}.")
    options.check_size(*data.image_shape[:2])
    return dataclasses.replace(data, notes=(*data.notes, *notes_on(data)))


def _load(dataset, options):
    """Load images of any name or path, see `load_images`."""
    name = os.fspath(dataset)
    path = user_path(name)
    # A slash alone does not make a path: `mnist_corrupted/fog` is a data set.
    is_path = isinstance(dataset, os.PathLike) or name.startswith((".", "~", os.sep))
    composed = None if isinstance(dataset, os.PathLike) else find_composed(name)
    if name in GENERATED:
        options.refuse(f"the data set {name!r}", *_OF_FILES, *options.of_folders)
        data = GENERATED[name](options)
    elif composed and (composed.base in GENERATED or is_known(composed.base)):
        data = load_composed(composed, _load, options)
    elif path.exists() and (is_path or not path.is_dir() or not is_known(name)):
        return _load_path(path, options)
    elif is_path or path.suffix.lower() in (".npz", ".npy", ".zip"):
        raise DataError(f"`dataset`: there is no such folder or file. Received: {dataset}.")
    else:
        data = load_tfds(name, options)
    if path.is_dir() and not is_path:
        note = f"{name} is the data set of this name. The folder is {os.path.join('.', name)}."
        data = dataclasses.replace(data, notes=(*data.notes, note))
    return data


def _load_path(path, options):
    """Load images of a folder or a file."""
    tree, kind = Folder(options.data_version), path.suffix.lower()
    if path.is_dir():
        is_hub_folder = is_saved(path) or (parquet_files(path) and _has_no_images(tree, path))
        if is_hub_folder and options.data_version > 2:
            return load_hub(path, options)
        return _load_tree(tree, path, options)
    if not path.is_file():
        raise DataError(f"`dataset` must be a folder or a regular file. Received: {path}.")
    if kind == ".npz":
        return load_npz(path, options)
    if is_array(path.name):
        return load_array(path, options)
    if kind == ".zip":
        return _load_tree(Archive(path, options.data_version), path, options)
    if kind == ".parquet":
        return load_hub(path, options)
    if kind in extensions():
        return load_folder(path, options, tree)
    advice = " Give the folder of images, and this file as `labels`." if kind in TABLES else ""
    raise DataError(
        "`dataset` must be a folder of images, a .zip file of one, a file of arrays (.npz, .npy, "
        f"idx) or a .parquet file. Received: file {path}.{advice}"
    )


def _has_no_images(tree, path):
    """Return whether a folder holds no images, and no folders but that of parquet files."""
    entries = Entries(tree, path)
    return not entries.images and set(entries.folders) <= {"data"}


def _load_tree(tree, root, options):
    """Load images of a folder on disk or in an archive, of files or of arrays."""
    folder, names = arrays_alone(tree, os.fspath(root))
    if names:
        return load_arrays(tree, folder, names, options, os.fspath(root))
    return load_folder(root, options, tree)
