"""Atomic writing: to a temporary file, then to disk, then renamed to its final path."""

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
    """Yield a temporary path; rename it to `path` if the block succeeds, else delete it."""
    try:
        with contextlib.ExitStack() as stack:
            stream = _stream(path)
            # A FIFO, a device or the program's output cannot be replaced: copy the bytes into it.
            if stream:
                stack.enter_context(stream)
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                temporary = folder / f"stream{suffix}"
                yield temporary
                with open(temporary, "rb") as written:
                    shutil.copyfileobj(written, stream)
            else:
                # Keep a symbolic link, and replace its target.
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
    """Write `values` as JSON atomically; NaN and infinity become null."""
    with beside(path) as temporary:
        temporary.write_text(json.dumps(_finite(values), indent=2) + "\n")


def read_json(path, mend=None):
    """Return the values of a JSON file; raise `RunFailed` with the hint `mend` on failure."""
    try:
        return json.loads(Path(path).read_text())
    except OSError as error:
        raise RunFailed(f"Cannot read {path}: {error.strerror or error}.", mend) from error
    except (ValueError, RecursionError) as error:
        raise RunFailed(f"{path} is damaged, it holds no JSON ({error}).", mend) from error


def digest(path):
    """Return the SHA-256 of a file as 64 hex digits."""
    found = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(2**20):
                found.update(block)
    except OSError as error:
        raise RunFailed(f"Cannot read {path}: {error.strerror or error}.") from error
    return found.hexdigest()


def remove(path):
    """Delete a file, a link or a whole folder, if it exists."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    except OSError as error:
        raise RunFailed(f"Cannot delete {path}: {error}.") from error


def clear_folder(path):
    """Delete everything in a folder, which may be a link; keep the folder itself."""
    try:
        entries = os.listdir(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunFailed(f"Cannot clear {path}: {error.strerror or error}.") from error
    for name in entries:
        remove(os.path.join(path, name))


def check_writable(folder, mend="model_dir"):
    """Create `folder` if needed; raise `RunFailed` if it is not writable."""
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
    """Open a FIFO, a device or the program's own output for writing; None for other paths."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            if os.path.samestat(found, os.fstat(output.fileno())):
                # A new handle would start at offset zero and overwrite earlier output.
                output.flush()
                return os.fdopen(os.dup(output.fileno()), "wb")
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        return None
    return open(path, "wb")


def _replace(target, temporary):
    if not target.is_dir():
        os.replace(temporary, target)
        return
    # A folder cannot be renamed onto one that is not empty, so set the old one aside.
    old = put_aside(temporary)
    os.rename(target, old)
    try:
        os.rename(temporary, target)
    except BaseException:
        os.rename(old, target)
        raise
    remove(old)


def _sync(path):
    """Flush a file, or all files of a folder, to disk, so that they survive a power cut."""
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
        # Some file systems do not support fsync for folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)
