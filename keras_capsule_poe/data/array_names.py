"""Names of arrays and columns: which of them hold images, labels and groups of which split."""

import contextlib
import functools
import re

import numpy as np

from keras_capsule_poe.errors import DataError, listing

# Words for what an array holds, and for splits, in lower case and without signs.
_ROLES = {
    "images": ("x", "images", "image", "imgs", "img", "data", "pixels", "inputs", "arr0", ""),
    "labels": ("y", "labels", "label", "lbls", "targets", "target", "class", "arr1"),
    "groups": ("groups", "group"),
}
_SPLITS = {
    "": ("",),
    "train": ("train", "training", "tr"),
    "test": ("test", "testing", "tests", "te", "t10k"),
    "validation": ("val", "valid", "validation", "dev", "eval"),
}
_OPTIONS = {"images": "column", "labels": "label_column", "groups": "groups"}
_HINTS = {"images": "column", "labels": "label_column"}


def is_array(name):
    """Return whether a file's name is that of an `.npy` or an idx file."""
    return stem(name) != name.lower().removesuffix(".gz")


def is_npy(name):
    """Return whether a file's name is that of an `.npy` file, which may be compressed."""
    return bool(re.search(r"\.npy(\.gz)?$", name, re.I))


def stem(name):
    """Return the name of the array in a file.

    >>> [stem(name) for name in ("train-images-idx3-ubyte.gz", "x_test.npy", "a.npz")]
    ['train-images', 'x_test', 'a']
    """
    plain = re.sub(r"\.gz$", "", name, flags=re.I)
    return re.sub(r"([-.]idx\d(-[a-z]+)?|\.np[yz])$", "", plain, flags=re.I)


@functools.cache
def _table(given):
    """Return {plain name: (role, split)}; `given` are pairs (role, word) in place of the usual."""
    words = {**_ROLES, **{role: (_plain(word),) for role, word in given}}
    return {
        pair: (role, split)
        for role, of_role in words.items()
        for word in of_role
        for split, of_split in _SPLITS.items()
        for part in of_split
        for pair in (word + part, part + word)
        if pair
    }


def _plain(name):
    return re.sub("[^a-z0-9]", "", name.lower())


def place(name, given=(), is_prefixed=False):
    """Return (prefix, role, split) of the name of an array, or None.

    >>> place("x_train"), place("emnist-letters-test-labels", is_prefixed=True)
    (('', 'images', 'train'), ('emnist-letters', 'labels', 'test'))
    """
    table = _table(tuple(given))
    words = re.split("[-_.]", name.lower()) if is_prefixed else [name.lower()]
    for number in range(len(words)):
        if found := table.get(_plain("".join(words[number:]))):
            return "-".join(words[:number]), *found
    return None


def choose(arrays, options):
    """Return which arrays hold images, labels and groups.

    Args:
        arrays: `Arrays`.
        options: `Options`.

    Returns:
        Dict from `"train"`, and maybe `"test"` and `"validation"`, to a dict from `"images"`, and
        maybe `"labels"` and `"groups"`, to the name of an array; and a list of the other names.
    """
    if options.data_version < 3:
        found = _former(arrays, options)
    else:
        known = _known(arrays, options)
        images = _images(arrays, known, options)
        found = {
            split: {"images": each[1], **_beside(arrays, known, each, len(images) == 1)}
            for split, each in images.items()
        }
    used = {name for each in found.values() for name in each.values()}
    return found, [name for name in arrays.names if name not in used]


def _former(arrays, options):
    """Return the choice of former versions, which knew few names."""
    names = set(arrays.names)
    if options.column is None and {"x_train", "x_test"} <= names:
        found = {s: {"images": f"x_{s}", "labels": f"y_{s}"} for s in ("train", "test")}
    else:
        images = options.column or ("x_train" if "x_train" in names else "images")
        labels = "y_train" if images == "x_train" else "labels"
        found = {"train": {"images": images, "labels": labels}}
    if not {each["images"] for each in found.values()} <= names:
        raise _missing(arrays, "images", options.column)
    return {s: {r: n for r, n in each.items() if n in names} for s, each in found.items()}


def _known(arrays, options):
    """Return {(role, split): [(prefix, name)]} of the arrays with usual or with given names."""
    given = {role: getattr(options, option) for role, option in _OPTIONS.items()}
    given = {role: name for role, name in given.items() if name is not None}
    found = {}
    for name in arrays.names:
        if name in given.values():
            continue
        if usual := place(name, given.items(), arrays.is_prefixed):
            prefix, role, split = usual
            # What is named exactly is all that has its role.
            if given.get(role) not in arrays.names:
                found.setdefault((role, split), []).append((prefix, name))
    for role, name in given.items():
        if name in arrays.names:
            usual = place(name, (), arrays.is_prefixed) or ("", role, "")
            found[role, usual[2]] = [(usual[0], name)]
        elif not any(each == role for each, _ in found):
            raise _missing(arrays, role, name)
    return found


def _missing(arrays, role, name):
    """Return the error that there is no array of a role."""
    option = _OPTIONS[role]
    asked = f"no array {name!r}" if name else "no array x_train or images"
    return DataError(
        f"{arrays.path} holds {asked}; `{option}` must name the array of {role}. "
        f"Received: arrays {listing(arrays.names)}.",
        hint=_HINTS.get(role),
    )


def _one(arrays, role, pairs, prefix=""):
    """Return the one of some pairs (prefix, name) that has a role, and its prefix."""
    for wanted in (prefix, ""):
        found = [pair for pair in pairs if pair[0] == wanted]
        if len(found) == 1:
            return found[0]
    if len(pairs) == 1:
        return pairs[0]
    raise DataError(
        f"{arrays.path} holds several arrays of {role}; `{_OPTIONS[role]}` must name one. "
        f"Received: arrays {listing(name for _, name in pairs)}.",
        hint=_HINTS.get(role),
    )


def _images(arrays, known, options):
    """Return {split: (prefix, name, split that the name says)} of the arrays of images."""
    found = {
        split: (*_one(arrays, "images", pairs), split)
        for (role, split), pairs in known.items()
        if role == "images"
    }
    if options.column in arrays.names:
        return {"train": next(iter(found.values()))}
    if "train" not in found:
        if "" not in found and len(alike := _like_images(arrays)) == 1:
            found[""] = ("", alike[0], "")
        if "" not in found:
            raise _missing(arrays, "images", options.column)
        found["train"] = found[""]
    found.pop("", None)
    if "validation" in found and "test" not in found:
        found["test"] = found.pop("validation")
    return {split: found[split] for split in ("train", "test", "validation") if split in found}


def _like_images(arrays):
    """Return the names of the arrays with the shape and type of images."""
    found = []
    for name in arrays.names:
        with contextlib.suppress(DataError):
            member = arrays[name]
            is_image = (
                len(member.shape) == 3 or len(member.shape) == 4 and member.shape[3] in (1, 3)
            )
            if is_image and (member.dtype == np.uint8 or member.dtype.kind == "f"):
                found.append(name)
    return found


def _beside(arrays, known, images, is_alone):
    """Return {role: name} of the labels and groups of an array of images.

    Args:
        arrays: `Arrays`.
        known: see `_known`.
        images: prefix, name and split of the array, see `_images`.
        is_alone: bool, whether there are no other images.
    """
    prefix, name, split = images
    found = {}
    for role in ("labels", "groups"):
        pairs = known.get((role, split))
        if not pairs and is_alone:
            every = {key: value for key, value in known.items() if key[0] == role}
            pairs = every.get((role, "")) or (
                next(iter(every.values())) if len(every) == 1 else None
            )
            # Of another split, unless there is a label for each image.
            rows = arrays[name].shape[:1]
            pairs = [pair for pair in pairs or () if arrays[pair[1]].shape[:1] == rows]
        if pairs:
            found[role] = _one(arrays, role, pairs, prefix)[1]
    return found


def column_of(option, given, known, what, columns):
    """Return the name of a column, as an option gives it, or of the only one that is known."""
    known = list(known)
    if given is None and len(known) == 1:
        return known[0]
    if given in known:
        return given
    there = f"one of {listing(known)}" if known else "of which there is none"
    raise DataError(
        f"`{option}` must name {what}, {there}. Received: {option}={given!r}, columns "
        f"{listing(columns)}.",
        hint=option if known else None,
    )
