"""Folders of images: which sub-folders are splits, and which labels the images have."""

import collections
import itertools
import os
import re
import unicodedata

import numpy as np

from keras_capsule_poe.data.groups import check_apart, groups_of_files
from keras_capsule_poe.data.labels import DATA_VERSION, Words
from keras_capsule_poe.data.listing import Entries, LeftOut, Listing, few, masks_in
from keras_capsule_poe.data.reading import CALLED, Labels, read_files
from keras_capsule_poe.data.tables import find_table, given_table
from keras_capsule_poe.data.trees import Archive, Folder
from keras_capsule_poe.errors import DataError, counted

# Usual names of folders, without prefix and suffix: `seg_train` and `test_images` count, too.
SPLITS = {
    "train": ("train", "training"),
    "test": ("test", "testing", "tests"),
    "validation": ("val", "valid", "validation", "dev", "eval", "evaluation"),
}


def load_folder(folder, options, tree):
    """Load all images below a folder of a tree, split into training, test and held-out images.

    Args:
        folder: path of the folder, or of one file of several pages.
        options: `Options`.
        tree: `Folder` or `Archive`.
    """
    options.refuse(tree.kind, "column", "data_dir", "manual_dir", *tree.refused)
    folder = os.fspath(folder)
    parts, notes = _parts(tree, folder, options)
    if options.data_version > 2:
        _refuse_shared_files(tree, parts)
    if options.labels is not None:
        table = given_table(options.labels, options.label_column, tree, folder)
        given, more = table.labels(parts)
        labels = Labels(given)
    else:
        options.refuse("images without a file of `labels`", "label_column")
        table = None
        labels, more = _folder_labels(tree, folder, parts, options)
    groups, grouped = _groups(parts, options)
    notes = [*notes, *_left_out(tree, folder, parts, table), *more, *grouped]
    return read_files(parts, labels, groups, options, folder, notes)


def listed(path):
    """Return the `Listing` of a folder of images, of a .zip file of one, or of one file."""
    is_packed = os.path.isfile(path) and path.lower().endswith(".zip")
    tree = Archive(path, DATA_VERSION) if is_packed else Folder(DATA_VERSION)
    return Listing(tree, path, is_chosen=True)


def _parts(tree, folder, options):
    """Return the `Listing` of each split, and notes on the choice."""
    notes, is_chosen = (), options.train_dir is not None
    if is_chosen:
        roots = {"train": os.fspath(options.train_dir)}
        if options.test_dir is not None:
            roots["test"] = os.fspath(options.test_dir)
    elif options.test_dir is not None:
        raise DataError(
            "`test_dir` needs `train_dir`, too. "
            f"Received: test_dir={str(options.test_dir)!r} and train_dir=None."
        )
    elif options.data_version == 1:
        tests = [os.path.join(folder, name) for name in ("test", "validation", "val")]
        test = next((root for root in tests if tree.is_folder(root)), tests[0])
        roots = {"train": os.path.join(folder, "train"), "test": test}
        if not all(len(Listing(tree, root)) for root in roots.values()):
            roots = {"train": folder}
    elif not tree.is_folder(folder):
        roots = {"train": folder}
    else:
        roots, notes = find_splits(tree, folder, is_grouped=options.groups is not None)
        if "validation" in roots and "test" not in roots:
            roots["test"] = roots.pop("validation")
    parts = {split: Listing(tree, root, is_chosen) for split, root in roots.items()}
    train = parts["train"]
    if not len(train):
        kinds = " ".join(train.left_out.notes()) or "It has no files that Pillow reads."
        raise DataError(f"folder {train.root} holds no images. {kinds}")
    kept = {}
    for split, part in parts.items():
        is_unlabelled = train.class_names and not part.class_names and options.labels is None
        if not len(part) and is_chosen and options.data_version > 2:
            raise DataError(f"`{split}_dir` must hold images. Received: {part.root}.")
        if not len(part):
            notes += (f"{part.root} holds no images.",)
        elif is_unlabelled and options.data_version > 1:
            notes += (
                f"Left out: the {len(part)} images of {part.root}, as {part.loose} has no class; "
                f"those of {train.root} have.",
            )
        else:
            kept[split] = part
    return kept, notes


def _refuse_shared_files(tree, parts):
    """Raise `DataError` if a file is in two parts, by a link or as it is."""
    seen = {}
    for part in parts.values():
        root = tree.identity(part.root)
        if root in seen:
            raise DataError(
                f"training and test images must be in two folders. Received: {seen[root]} and "
                f"{part.root}, which are one."
            )
        seen[root] = part.root
    if len(parts) < 2:
        return
    # Eight bytes a file.
    keys = {
        split: np.array([_key(tree, path) for path in part.paths()], np.int64)
        for split, part in parts.items()
    }
    for one, other in itertools.combinations(parts, 2):
        if both := set(np.intersect1d(keys[one], keys[other]).tolist()):
            pair = [_first(tree, parts[split], both) for split in (one, other)]
            raise DataError(
                f"a file must be in one split alone. Received: {pair[0]} among the {CALLED[one]} "
                f"images, which is {pair[1]} among the {CALLED[other]} images."
            )


def _first(tree, part, wanted):
    return next(path for path in part.paths() if _key(tree, path) in wanted)


def _key(tree, path):
    """Return a number of the file behind a path."""
    try:
        return hash(tree.identity(path))
    except OSError:
        # A link to nothing, which is reported when it is read.
        return hash(path)


def _folder_labels(tree, folder, parts, options):
    """Return the `Labels` of class folders, and notes on classes."""
    names, notes = {split: part.class_names for split, part in parts.items()}, []
    if None in names.values():
        notes = [
            f"The images have no labels: {part.loose} lies outside the class folders."
            for part in parts.values()
            if part.loose and part.has_folders
        ]
        table = find_table(tree, folder, parts)
        if table:
            notes.append(f"The images have no labels. `labels` reads them from a file: {table}.")
        return Labels({}, table=table), notes
    if len(set().union(*names.values())) < 2 and (table := find_table(tree, folder, parts)):
        notes.append(f"All images are of one class. `labels` reads others from a file: {table}.")
    if options.data_version > 2:
        names, more = _alike(names)
        notes += more
    return Labels({s: Words(part.classes, names[s]) for s, part in parts.items()}), notes


def _groups(parts, options):
    """Return the groups of the images of each split, maybe none, and notes on them."""
    if options.groups is not None:
        known, found = {}, {}
        for split, part in parts.items():
            depth = 1 if part.class_names else 0
            paths = (path[len(part.root) :] for path, n in part.counted() for _ in range(n))
            found[split] = groups_of_files(paths, options.groups, known, depth)
        check_apart({CALLED[split]: each for split, each in found.items()}, list(known))
        return found, []
    nested = [part.nested for part in parts.values() if part.class_names and part.nested]
    notes = []
    if nested:
        notes = [
            f"Class folders hold sub-folders, such as {os.path.dirname(nested[0])}. If the images "
            'of one show the same object, `groups="folder"` keeps them together, in one part of '
            "the data."
        ]
    if all(part.files is None for part in parts.values()):
        return {}, notes
    if sum(part.file_count for part in parts.values()) < 2:
        return {}, [*notes, "All images are pages of one file: it has no second one to test with."]
    # The pages of a file are a group.
    starts = np.cumsum([0, *(part.file_count for part in parts.values())])
    return {
        split: start + (np.arange(len(part)) if part.files is None else part.files)
        for start, (split, part) in zip(starts, parts.items())
    }, notes


def _alike(names):
    """Return class names by split in which `Cat` and `cat` are one class, and notes on them.

    They are two classes if they are in one split, as letters may be.
    """
    # The spelling of the training images comes first.
    names = {split: names[split] for split in CALLED if split in names}
    plain = {split: [_plain(name) for name in each] for split, each in names.items()}
    if any(len(set(each)) < len(each) for each in plain.values()):
        return names, []
    spellings = collections.defaultdict(list)
    for split, each in plain.items():
        for name, key in zip(names[split], each):
            if name not in spellings[key]:
                spellings[key].append(name)
    several = [" and ".join(found) for found in spellings.values() if len(found) > 1]
    named = {s: tuple(spellings[key][0] for key in each) for s, each in plain.items()}
    return named, [f"One class each, spelled in two ways: {few(several)}."] if several else []


def _plain(name):
    """Return a class name without what people and systems write in several ways."""
    return re.sub(r"[\s_-]+", " ", unicodedata.normalize("NFKC", name).casefold()).strip()


def _left_out(tree, folder, parts, table):
    """Return lines on what is left out of a folder with these parts, and on the pages of files."""
    left_out, notes = LeftOut(), []
    for part in parts.values():
        left_out.add(part.left_out)
        notes += part.notes()
    above = {part.root: os.path.dirname(part.root) for part in parts.values()}
    roots, images = set(above), []
    for place in list(above.values()):
        # Folders between the given one and those of the parts.
        while os.path.join(place, "").startswith(os.path.join(folder, "")) and place not in roots:
            roots.add(place)
            entries = Entries(tree, place)
            left_out.add(entries.left_out)
            images += [os.path.join(place, name) for name in entries.images]
            place = os.path.dirname(place)
    if images:
        notes.append(f"Left out: {counted(len(images), 'image')} beside the splits ({images[0]}).")
    if table and os.path.realpath(table.path).startswith(os.path.realpath(folder)):
        # It is read.
        left_out.others[os.path.splitext(table.path)[1].lower()] -= 1
        left_out.others = +left_out.others
    return [*left_out.notes(), *notes]


def split_of(name):
    """Return the split, "train", "test" or "validation", that a folder's name stands for, or None.

    >>> [split_of(name) for name in ("Training", "seg_test", "val2017", "trains", "latest")]
    ['train', 'test', 'validation', None, None]
    """
    words = re.findall("[a-z]+", name.lower())
    for split, names in SPLITS.items():
        if words and (words[0] in names or words[-1] in names):
            return split
    return None


def find_splits(tree, folder, is_grouped=False):
    """Return the paths of the sub-folders of each split, and the notes on them.

    Equal sub-folders of several folders may be groups of images if `is_grouped`.

    Returns:
        Dict with `"train"` and maybe `"test"` and `"validation"`, and a tuple of str. Without
        sub-folders of splits, `"train"` is `folder` itself, or the only folder in it.

    Raises:
        DataError: If the sub-folders may be splits but their names do not say which.
    """
    folder, notes = _unwrapped(tree, folder)
    names, found = Entries(tree, folder).folders, {}
    for name in names:
        if split := split_of(name):
            found.setdefault(split, []).append(name)
    if "train" in found and len(found) > 1:
        for split, several in found.items():
            if len(several) > 1:
                raise DataError(
                    f"{folder} must have one folder of {split} images. "
                    f"Received: {', '.join(several)}.",
                    hint="train_dir",
                )
        ignored = [name for name in names if split_of(name) is None]
        if ignored:
            notes += (f"Left out: {few(ignored)} in {folder}, besides the splits.",)
        roots = {
            s: _class_root(tree, os.path.join(folder, several[0])) for s, several in found.items()
        }
        return roots, notes
    if names and len(names) == sum(map(len, found.values())) and "train" not in found:
        raise DataError(
            f"{folder} must hold training images, too. Received: {few(names)}.", hint="train_dir"
        )
    inside = []
    for name in names:
        entries = Entries(tree, os.path.join(folder, name))
        has_masks = masks_in(tree, os.path.join(folder, name), entries)
        alike = () if has_masks else entries.folders
        inside.append([each for each in alike if each not in entries.links])
    is_open = len(names) > 1 and inside[0] and all(each == inside[0] for each in inside)
    if is_open and not is_grouped:
        raise DataError(
            f"the folders in {folder} hold the same sub-folders, so they may be splits of the "
            f"images or classes. Received: {few(names)}, each with {few(inside[0])}.",
            hint="train_dir",
        )
    return {"train": folder}, notes


def _unwrapped(tree, folder):
    """Return the first folder that does not hold one folder of folders alone, and notes."""
    notes = ()
    while only := _only(tree, folder):
        split = split_of(os.path.basename(only))
        if not split and not Entries(tree, only).folders:
            break
        if split in ("test", "validation"):
            raise DataError(
                f"{folder} must hold training images, too. Received: {os.path.basename(only)}/ "
                "alone.",
                hint="train_dir",
            )
        notes = (f"{only} is the only folder: all images are taken from it.",)
        folder = only
    return folder, notes


def _class_root(tree, folder):
    """Return the folder inside which class folders lie, if archives have wrapped it in others."""
    while (only := _only(tree, folder)) and Entries(tree, only).folders:
        folder = only
    return folder


def arrays_alone(tree, folder):
    """Return a folder that holds files of arrays and no images, and their names; else no names.

    It is the given folder, or the only one in it.
    """
    while only := _only(tree, folder):
        folder = only
    entries = Entries(tree, folder)
    return folder, [] if entries.images or entries.folders else entries.arrays


def _only(tree, folder):
    """Return the sub-folder of a folder that holds nothing else that is read, or None."""
    entries = Entries(tree, folder)
    is_alone = len(entries.folders) == 1 and not entries.images
    return os.path.join(folder, entries.folders[0]) if is_alone else None
