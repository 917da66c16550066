"""Groups of images that must not be separated, such as all images of one patient."""

import array
import os
import re
from collections.abc import Iterable, Mapping

import numpy as np

from keras_capsule_poe.data.labels import Part, read_labels
from keras_capsule_poe.data.streams import by_class, epoch_order, hold_out
from keras_capsule_poe.errors import DataError, listing

# Value of the option `groups` by which each sub-folder of a class is a group.
FOLDER = "folder"


def number_groups(parts: Mapping[str, Part]) -> dict[str, np.ndarray]:
    """Return int64 groups (N,) of each part; raise `DataError` if parts share a group."""
    read = {}
    for name, part in parts.items():
        found = read_labels(*part)
        if found is None or found.ndim != 1:
            received = "none" if found is None else f"shape {found.shape}"
            raise DataError(
                f"{part.what} must be an integer or a string for each image. Received: {received}."
            )
        read[name] = found.astype(str)
    values = np.unique(np.concatenate(list(read.values())))
    numbers = {name: np.searchsorted(values, found) for name, found in read.items()}
    check_apart(numbers, values)
    return {name: found.astype(np.int64) for name, found in numbers.items()}


def check_apart(groups, names=None):
    """Raise `DataError` if two parts, a dict from their names to groups (N,), share a group."""
    parts = list(groups)
    for k, first in enumerate(parts):
        for other in parts[k + 1 :]:
            if len(shared := np.intersect1d(groups[first], groups[other])):
                shown = listing(shared if names is None else np.asarray(names)[shared], 3)
                raise DataError(
                    "a group of images must be in one part of the data. Received: "
                    f"{len(shared)} in both {first} and {other} images, {shown}."
                )


def checked_pattern(groups):
    """Return the compiled pattern of an option `groups`, or None for `"folder"`."""
    if groups == FOLDER:
        return None
    try:
        return re.compile(groups)
    except (re.error, TypeError) as error:
        raise DataError(
            f"`groups` must be {FOLDER!r} or a regular expression of paths ({error}). "
            f"Received: groups={groups!r:.80}."
        ) from error


def groups_of_files(paths: Iterable[str], groups: str, known: dict, depth: int = 1) -> np.ndarray:
    """Return int64 groups (N,) of files, whose numbers `known` keeps for further parts.

    Args:
        paths: str, paths below the folder of a part, such as `cat/case-017/3.png`.
        groups: `"folder"`: the first sub-folder of a class, and each file outside of one by itself.
            Otherwise a regular expression: what its parentheses match, or else the whole match.
        known: dict of the number of each group, which grows.
        depth: int, number of folders above the groups: 1 for a class.
    """
    pattern, found = checked_pattern(groups), array.array("q")
    unmatched, first = 0, None
    for path in paths:
        path = path.replace(os.sep, "/").lstrip("/")
        if pattern is None:
            # No sub-folder starts with a slash.
            group = next(iter(path.split("/")[depth:-1]), f"/{path}")
        else:
            match = pattern.search(path)
            group = match and ("/".join(filter(None, match.groups())) or match[0])
            if not group:
                unmatched, first = unmatched + 1, first or path
        found.append(known.setdefault(group, len(known)))
    if unmatched:
        raise DataError(
            f"`groups` must match the path of every image. Received: groups={groups!r}, which "
            f"does not match {unmatched} of {len(found)} paths, {first} first."
        )
    return np.frombuffer(found, np.int64) if found else np.empty(0, np.int64)


def split(classes, fraction, seed, groups=None):
    """Split images by class at random into training and test indices, without separating groups.

    Args:
        classes: int array (N,), the class of each image, or equal numbers without classes.
        fraction: float, share of test images.
        seed: non-negative int.
        groups: int array (N,), the group of each image, or None.
    """
    if groups is None:
        return hold_out(classes, fraction, seed)
    is_test = draw_groups(classes, groups, max(1, round(fraction * len(groups))), seed)
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    return train[by_class(classes[train], seed)], test[by_class(classes[test], seed)]


def draw_groups(classes, groups, n, seed, least=2):
    """Return which images (N,) to take: whole groups, about `n` images, by class at random.

    Args:
        classes: int array (N,), the class of each image, or equal numbers without classes.
        groups: int array (N,), the group of each image.
        n: int, number of images to take.
        seed: non-negative int.
        least: int, number of groups of a class from which on one of them is taken.

    Raises:
        DataError: If there are fewer than two groups.
    """
    names, group = np.unique(groups, return_inverse=True)
    classes = np.unique(classes, return_inverse=True)[1]
    if len(names) < 2:
        raise DataError(
            "there must be images of at least 2 groups, so that one can be kept apart. "
            f"Received: {len(groups)} images of {len(names)}."
        )
    table = np.zeros((len(names), classes.max() + 1), np.int64)
    np.add.at(table, (group, classes), 1)
    wanted = n * table.sum(axis=0) / len(groups)
    order = epoch_order(len(names), seed, 0)
    left, have = (table > 0).sum(axis=0), np.zeros(table.shape[1])
    taken = np.zeros(len(names), bool)

    def take(number):
        nonlocal have, left
        taken[number] = True
        have, left = have + table[number], left - (table[number] > 0)

    def leaves_each(number):
        return (left[table[number] > 0] > 1).all()

    for number in order:
        gap, after = np.abs(wanted - have).sum(), np.abs(wanted - have - table[number]).sum()
        if after < gap and leaves_each(number):
            take(number)
    smallest = order[np.argsort(table.sum(axis=1)[order], kind="stable")]
    for kind in np.flatnonzero((left >= least) & (have == 0)):
        # Another class may have brought one by now.
        for number in smallest if have[kind] == 0 else ():
            if table[number, kind] and not taken[number] and leaves_each(number):
                take(number)
                break
    if not taken.any():
        take(next(filter(leaves_each, smallest), smallest[0]))
    return taken[group]
