"""Images of the package `datasets` of Hugging Face: its objects, saved folders and parquet files.

Rows stay in memory-mapped files, and each image is decoded when it is read.
"""

import contextlib
import functools
import os
import re
import warnings
from pathlib import Path

from keras_capsule_poe.data.array_names import column_of
from keras_capsule_poe.data.folders import split_of
from keras_capsule_poe.data.image_files import UnreadableImage
from keras_capsule_poe.data.reading import Labels, read_files, read_in_order
from keras_capsule_poe.data.trees import ImageFile
from keras_capsule_poe.errors import DataError, counted, listing, reading

_UNREADABLE = "cannot be read by the package `datasets`"
# Usual names of the column of labels, the best first.
_LABELS = ("label", "labels", "class", "target", "category", "digit", "y")


def is_hub(dataset):
    """Return whether an object is a `Dataset` or a `DatasetDict` of the package `datasets`."""
    kinds = type(dataset).__mro__
    is_of_package = any(kind.__module__.partition(".")[0] == "datasets" for kind in kinds)
    return is_of_package and any("Dataset" in kind.__name__ for kind in kinds)


def parquet_files(folder):
    """Return the paths (str) of the .parquet files of a folder, or of its folder `data`."""
    for place in (Path(folder), Path(folder, "data")):
        if found := sorted(place.glob("*.parquet")):
            return list(map(str, found))
    return []


def is_saved(folder):
    """Return whether a folder was written by `save_to_disk` of the package `datasets`."""
    files = ("dataset_dict.json",), ("state.json", "dataset_info.json")
    return any(all(Path(folder, name).is_file() for name in names) for names in files)


def load_hub(dataset, options):
    """Load the images of a `Dataset` or a `DatasetDict`, or of files that hold one.

    Args:
        dataset: the object, or the path of a saved folder, of a folder with parquet files or of
            one such file.
        options: `Options`.
    """
    name = os.fspath(dataset) if isinstance(dataset, (str, os.PathLike)) else "datasets"
    refused = ("data_dir", "manual_dir", "train_dir", "test_dir", "labels", "groups")
    options.refuse("images of the package `datasets`", *refused)
    package = _package(name)
    with _quiet(package), reading(f"{name} {_UNREADABLE}"):
        found = _opened(package, name) if name != "datasets" else dataset
        splits = dict(found) if isinstance(found, package.DatasetDict) else {"train": found}
        if not all(isinstance(each, package.Dataset) for each in splits.values()):
            raise DataError(
                "`dataset` must be a Dataset or a DatasetDict, whose rows have numbers. "
                f"Received: {type(found).__name__}; load it without `streaming`."
            )
        chosen, notes = _chosen(splits, name)
        columns = options.column, options.label_column
        parts = {s: Rows(each, s, name, *columns, package) for s, each in chosen.items()}
    notes += [note for part in parts.values() for note in part.notes]
    given = {split: part.labels() for split, part in parts.items()}
    labelled = {split: values for split, (values, _) in given.items() if values is not None}
    for split in list(parts) if labelled else ():
        missing = sum(each is None for each in labelled.get(split, [None] * len(parts[split])))
        if missing:
            notes.append(
                f"Left out: {counted(missing, 'image')} of {parts[split].root} without a label."
            )
        if split not in labelled:
            del parts[split]
    names = next((names for _, names in given.values() if names), None)
    return read_files(parts, Labels(labelled, names), {}, options, name, notes)


def read_rows(dataset, name):
    """Return the images (N, H, W, C) of a `Dataset` in the order of its rows, and any labels.

    Args:
        dataset: the object.
        name: str, the argument that errors name.
    """
    package = _package(name)
    if not isinstance(dataset, package.Dataset):
        hint = "Give its splits: `x=d['train'], validation_data=d['test']`."
        raise DataError(f"`{name}` must be a Dataset. Received: {type(dataset).__name__}. {hint}")
    with _quiet(package), reading(f"{name} {_UNREADABLE}"):
        rows = Rows(dataset, "train", name, None, None, package)
        values, names = rows.labels()
        if names:
            values = [None if value is None else names[value] for value in values]
        return read_in_order(rows), values


def _opened(datasets, path):
    """Return the `Dataset` or the `DatasetDict` of a saved folder or of parquet files."""
    if is_saved(path):
        return datasets.load_from_disk(path)
    splits = {}
    for file in [path] if os.path.isfile(path) else parquet_files(path):
        # Files are called `train-00000-of-00002.parquet`.
        split = split_of(re.split(r"[-.]", os.path.basename(file))[0]) or "train"
        splits.setdefault(split, []).append(file)
    return datasets.DatasetDict(
        {split: datasets.Dataset.from_parquet(each) for split, each in splits.items()}
    )


def _chosen(splits, name):
    """Return the splits to read by their usual names, and lines on others."""
    chosen = {}
    for split in splits:
        if (usual := split_of(split)) and usual not in chosen:
            chosen[usual] = split
    if len(splits) == 1:
        chosen = {"train": next(iter(splits))}
    if "train" not in chosen:
        raise DataError(f"{name} must have a split 'train'. Received: splits {listing(splits)}.")
    if "validation" in chosen and "test" not in chosen:
        chosen["test"] = chosen.pop("validation")
    others = [f"{s} ({len(each)} rows)" for s, each in splits.items() if s not in chosen.values()]
    notes = [f"Left out: the splits {listing(others)}."] if others else []
    return {usual: splits[split] for usual, split in chosen.items()}, notes


class Rows:
    """Images in a column of a `Dataset`, read one by one, as `Listing` has those of a folder.

    Attributes:
        root: str that messages call them.
        notes: lines on columns that are not used.
    """

    files = loose = None

    def __init__(self, dataset, split, name, column, label_column, package):
        self.root = f"split {split} of {name}"
        self.column = _image_column(dataset, column, name, package)
        self.label = _label_column(dataset, label_column, self.column, name)
        self._whole = dataset.with_format(None)
        raw = self._whole.select_columns([self.column])
        self._images = raw.cast_column(self.column, package.Image(decode=False))
        self.fingerprint = str(getattr(dataset, "_fingerprint", None) or dataset.info)
        unused = [each for each in dataset.column_names if each not in (self.column, self.label)]
        self.notes = [f"Not used of {self.root}: columns {listing(unused)}."] if unused else []

    def __len__(self):
        return len(self._images)

    def items(self, first=0):
        """Iterate over the images from number `first` on: the file, its page and a name."""
        for row in range(first, len(self)):
            name = f"row {row} of {self.root}"
            yield ImageFile(name, functools.partial(self._read, row)), 0, name

    def _read(self, row):
        """Return the bytes of the file of an image."""
        found = self._images[row][self.column]
        if found is None:
            raise UnreadableImage("is missing")
        return found["bytes"] if found["bytes"] is not None else Path(found["path"]).read_bytes()

    def labels(self):
        """Return the labels of all rows, None where one is missing, and the class names or None."""
        if self.label is None:
            return None, None
        values = self._whole.select_columns([self.label])[:][self.label]
        names = getattr(self._whole.features[self.label], "names", None)
        if names:
            # Of a label that is missing, `ClassLabel` makes -1.
            values = [None if value == -1 else value for value in values]
        return (values, names) if any(each is not None for each in values) else (None, None)


def _image_column(dataset, column, name, package):
    """Return the name of the column of images."""
    kinds = dataset.features
    found = [each for each, kind in kinds.items() if isinstance(kind, package.Image)]
    # Parquet files of other programs have the bytes of the files.
    found = found or [each for each, kind in kinds.items() if _may_be_images(kind)]
    return column_of("column", column, found, f"a column of image files of {name}", kinds)


def _may_be_images(kind):
    """Return whether the feature of a column is bytes, or a struct of bytes and a path."""
    if isinstance(kind, dict):
        return set(kind) == {"bytes", "path"}
    return getattr(kind, "dtype", None) in ("binary", "large_binary")


def _label_column(dataset, column, images, name):
    """Return the name of the column of labels, or None."""
    others = [each for each in dataset.column_names if each != images]
    if column is None:
        lower = {each.lower(): each for each in reversed(others)}
        kinds = [each for each in others if hasattr(dataset.features[each], "names")]
        return next((lower[each] for each in _LABELS if each in lower), next(iter(kinds), None))
    return column_of("label_column", column, others, f"a column of {name}", dataset.column_names)


def _package(name):
    """Return the package `datasets`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import datasets
    except ImportError as error:
        raise DataError(
            f"{name} needs the package `datasets`: pip install 'keras-capsule-poe[datasets]'."
        ) from error
    return datasets


@contextlib.contextmanager
def _quiet(datasets):
    """Context in which `datasets` shows no progress and no warnings."""
    before, level = datasets.is_progress_bar_enabled(), datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        datasets.logging.set_verbosity(level)
        if before:
            datasets.enable_progress_bars()
