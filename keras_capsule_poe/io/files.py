"""Files that are never half-written: written beside, brought to disk, then renamed."""

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.leftovers import put_aside, remove_leftovers, temporary_path


@contextlib.contextmanager
def beside(path, suffix=""):
    """A path next to `path` to write to, renamed to `path` when the block ends without error.

    Whatever stood at `path` is replaced, after the new bytes have reached the disk; after an error
    it is as it was and nothing is left behind. A link stays and what it points to is replaced; a
    FIFO, a device or the program's own output is written into. What killed processes left of the
    same `path` is removed.

    Args:
        path: The file or folder to end up with; folders above it are made.
        suffix: Ending of the temporary name, where a writer insists on one.

    Raises:
        RunFailed: If it cannot be written, for instance because the disk is full.

    Examples:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "deep" / "notes.txt"
    >>> with beside(path) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('whole', 1)
    """
    try:
        with contextlib.ExitStack() as stack:
            stream = _stream(path)
            if stream:
                stack.enter_context(stream)
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                temporary = folder / f"stream{suffix}"
                yield temporary
                with open(temporary, "rb") as written:
                    shutil.copyfileobj(written, stream)
            else:
                target = Path(os.path.realpath(path))
                target.parent.mkdir(parents=True, exist_ok=True)
                temporary = stack.enter_context(temporary_path(target, suffix))
                yield temporary
                _sync(temporary)
                _replace(target, temporary)
                _sync_one(target.parent)
                remove_leftovers(target.parent, target.name)
    except OSError as error:
        raise RunFailed(f"Cannot write {path}: {error.strerror or error}.") from error


def write_json(path, values):
    """Writes `values` as JSON, whole or not at all; NaN and infinity, which JSON has not, as null.

    Raises:
        RunFailed: If it cannot be written.

    Examples:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.json"
    >>> write_json(path, {"seed": 7})
    >>> read_json(path)
    {'seed': 7}
    """
    with beside(path) as temporary:
        temporary.write_text(json.dumps(_finite(values), indent=2) + "\n")


def read_json(path, mend=None):
    """The values in a JSON file.

    Args:
        path: The file.
        mend: What the error says would mend it; see `CapspoeError`.

    Raises:
        RunFailed: If the file is not readable JSON.
    """
    try:
        return json.loads(Path(path).read_text())
    except OSError as error:
        raise RunFailed(f"Cannot read {path}: {error.strerror or error}.", mend) from error
    except (ValueError, RecursionError) as error:
        raise RunFailed(f"{path} is damaged, it holds no JSON ({error}).", mend) from error


def digest(path):
    """SHA-256 of a file's bytes, 64 hex digits.

    Raises:
        RunFailed: If it cannot be read.

    Examples:

    >>> import os
    >>> digest(os.devnull)[:8]
    'e3b0c442'
    """
    found = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(2**20):
                found.update(block)
    except OSError as error:
        raise RunFailed(f"Cannot read {path}: {error.strerror or error}.") from error
    return found.hexdigest()


def remove(path):
    """Deletes a file, a link, or a folder with all that is in it; nothing where there is none.

    Raises:
        RunFailed: If something cannot be deleted.

    Examples:

    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> remove(folder)
    >>> os.path.exists(folder)
    False
    """
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    except OSError as error:
        raise RunFailed(f"Cannot delete {path}: {error}.") from error


def clear_folder(path):
    """Deletes all that is in a folder, which may stand behind a link; the folder itself stays.

    Nothing is to be cleared where there is no folder.

    Raises:
        RunFailed: If something cannot be deleted, or `path` is a file.

    Examples:

    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> open(os.path.join(folder, "a"), "w").close()
    >>> clear_folder(folder)
    >>> os.listdir(folder)
    []
    """
    try:
        entries = os.listdir(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunFailed(f"Cannot clear {path}: {error.strerror or error}.") from error
    for name in entries:
        remove(os.path.join(path, name))


def check_writable(folder, mend="model_dir"):
    """Makes `folder` if need be.

    Args:
        folder: Path.
        mend: What the error says would mend it; see `CapspoeError`.

    Raises:
        RunFailed: If it is a file, or nothing can be written in it.

    Examples:

    >>> import tempfile
    >>> check_writable(tempfile.mkdtemp())
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary_path(folder / "probe") as probe:
            probe.touch()
    except OSError as error:
        raise RunFailed(
            f"Cannot write in the folder {folder}: {error.strerror or error}.", mend
        ) from error


def _finite(values):
    if isinstance(values, dict):
        return {name: _finite(value) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def _stream(path):
    """A binary file of what takes bytes as they come, a FIFO or a device; None for all else."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            if os.path.samestat(found, os.fstat(output.fileno())):
                # Another handle would write from the beginning, over what the program printed.
                output.flush()
                return os.fdopen(os.dup(output.fileno()), "wb")
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        return None
    return open(path, "wb")


def _replace(target, temporary):
    if not target.is_dir():
        os.replace(temporary, target)
        return
    # No folder can be renamed onto one that is not empty.
    old = put_aside(temporary)
    os.rename(target, old)
    try:
        os.rename(temporary, target)
    except BaseException:
        os.rename(old, target)
        raise
    remove(old)


def _sync(path):
    """Brings a file, or a folder with all its files, to disk: a power cut cannot empty them."""
    for parent, _, names in os.walk(path):
        for name in (*names, "."):
            _sync_one(os.path.join(parent, name))
    if not path.is_dir():
        _sync_one(path)


def _sync_one(path):
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some file systems cannot do it for folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)
