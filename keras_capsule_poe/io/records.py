"""JSON files, and records: those with a digest and a copy, for data that a run cannot lose."""

import contextlib
import hashlib
import json
import math
import os
import stat
from pathlib import Path

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.atomic import atomic_write, remove

_SEAL = "digest"
# Bytes of the largest JSON file that is read: those of a run have some kilobytes.
_LARGEST = 2**27


def write_json(path, values):
    """Write `values` as JSON atomically; NaN and infinity become null."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(_finite(values), indent=2) + "\n")


def read_json(path, hint=None):
    """Return the values of a JSON file; raise `RunFailed` with the hint `hint` on failure."""
    try:
        check_regular(path, _LARGEST)
        return json.loads(Path(path).read_text())
    except OSError as error:
        raise RunFailed(f"Cannot read {path}: {error.strerror or error}.", hint) from error
    except (ValueError, RecursionError) as error:
        raise RunFailed(f"{path} is damaged, it holds no JSON ({error}).", hint) from error


def check_regular(path, most=math.inf):
    """Raise `OSError` unless a path leads to a file of at most `most` bytes.

    A FIFO would never end, nor would a device.
    """
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a FIFO or a device"
        raise OSError(f"it must be a file. Received: {kind}")
    if found.st_size > most:
        raise OSError(f"it must have at most {most:,} bytes. Received: {found.st_size:,}")


def digest(path):
    """Return the SHA-256 of a file as 64 hex digits."""
    found = hashlib.sha256()
    try:
        check_regular(path)
        with open(path, "rb") as file:
            while block := file.read(2**20):
                found.update(block)
    except OSError as error:
        raise RunFailed(f"Cannot read {path}: {error.strerror or error}.") from error
    return found.hexdigest()


def write_record(path, values, copy=True):
    """Write a dict as JSON with its digest atomically, and by default a hidden copy of it."""
    # The digest comes first, so that its line can be removed by hand without breaking the JSON.
    sealed = {_SEAL: _digest(values), **values}
    write_json(path, sealed)
    if copy:
        write_json(copy_of(path), sealed)


def read_record(path, hint=None, is_valid=lambda values: True):
    """Return a record's values; use its copy if the file is damaged, missing or not valid."""
    try:
        return _read(path, hint, is_valid)
    except RunFailed:
        with contextlib.suppress(RunFailed):
            return _read(copy_of(path), hint, is_valid)
        raise


def has_record(path):
    """Return whether a record or its copy exists."""
    return Path(path).exists() or copy_of(path).exists()


def remove_record(path):
    """Delete a record and its copy, if they exist."""
    # Delete the copy first: a copy alone would still count as the record.
    remove(copy_of(path))
    remove(path)


def copy_of(path):
    """Return the path of a record's copy."""
    return Path(path).with_name(f".{Path(path).name}")


def _read(path, hint, is_valid):
    values = read_json(path, hint)
    # A file without a digest was written by hand and is accepted.
    if isinstance(values, dict) and _SEAL in values:
        seal = values.pop(_SEAL)
        if seal != _digest(values):
            raise RunFailed(f"{path} is damaged: it does not hold what was written.", hint)
    if not is_valid(values):
        raise RunFailed(f"{path} is damaged: it holds something else.", hint)
    return values


def _digest(values):
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _finite(values):
    if isinstance(values, dict):
        return {name: _finite(value) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values
