"""JSON files that a program cannot do without: each knows what it holds, and has a copy."""

import contextlib
import hashlib
import json
from pathlib import Path

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.files import read_json, remove, write_json

_SEAL = "digest"


def write_record(path, values, copy=True):
    """Writes a dict as JSON with its digest, whole or not at all, and a hidden copy beside it.

    Args:
        path: The file.
        values: dict of plain values.
        copy: bool, whether it gets a copy, too.

    Raises:
        RunFailed: If it cannot be written.

    Examples:

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.json"
    >>> write_record(path, {"seed": 7})
    >>> read_record(path)
    {'seed': 7}
    """
    # First: whoever takes its line out by hand leaves JSON behind.
    sealed = {_SEAL: _digest(values), **values}
    write_json(path, sealed)
    if copy:
        write_json(copy_of(path), sealed)


def read_record(path, mend=None):
    """What `write_record` wrote; from the copy where the file is damaged or gone.

    A file without a digest, written by hand, is taken as it is.

    Args:
        path: The file.
        mend: What the error says would mend it; see `CapspoeError`.

    Returns:
        dict, or what else JSON can hold where it is not from `write_record`.

    Raises:
        RunFailed: If both are damaged, or the file is and has no copy.
    """
    try:
        return _read(path, mend)
    except RunFailed:
        with contextlib.suppress(RunFailed):
            return _read(copy_of(path), mend)
        raise


def has_record(path):
    """Whether a record or its copy is there.

    Examples:

    >>> has_record("nowhere/run.json")
    False
    """
    return Path(path).exists() or copy_of(path).exists()


def remove_record(path):
    """Removes a record and its copy; nothing where there is none.

    Raises:
        RunFailed: If one cannot be deleted.

    Examples:

    >>> remove_record("nowhere/run.json")
    """
    # The file last: killed in between, it is there or it is not.
    remove(copy_of(path))
    remove(path)


def copy_of(path):
    """Path of a record's copy.

    Examples:

    >>> copy_of("model/run.json").name
    '.run.json'
    """
    return Path(path).with_name(f".{Path(path).name}")


def _read(path, mend):
    values = read_json(path, mend)
    if isinstance(values, dict) and _SEAL in values:
        seal = values.pop(_SEAL)
        if seal != _digest(values):
            raise RunFailed(f"{path} is damaged: it does not hold what was written.", mend)
    return values


def _digest(values):
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
