"""Atomic writing, and removal of what dead processes left; locks between processes.

A file is written to a temporary path that names its process, brought to disk, then renamed.
"""

import contextlib
import errno
import functools
import hashlib
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import time
import uuid
from pathlib import Path

from keras_capsule_poe.errors import BadUse, RunFailed
from keras_capsule_poe.io.marks import mark

# Six hex digits of the process id, four of its machine or container (older versions: none), two
# random ones, then a suffix if the writer needs one.
_NAME = re.compile(
    r"\.(?P<target>.+)\.(?P<process>[0-9a-f]{6})(?P<space>[0-9a-f]{4})?[0-9a-f]{2}(\.\w+)?"
)
# Seconds after which a temporary file of another machine or container counts as left behind.
_FOREIGN = 24 * 3600
_OLD = ".old"  # marks a folder that was set aside
# Temporary paths in use by this process.
_writing: set[Path] = set()
# Errors of file systems without locks.
_LOCKLESS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


@contextlib.contextmanager
def temporary_path(target, suffix=""):
    """Yield a hidden path next to `target` that names this process; delete it afterwards."""
    token = f"{os.getpid():06x}{_process_space()}{uuid.uuid4().hex[:2]}"
    temporary = target.with_name(f".{target.name}.{token}{suffix}")
    _writing.add(temporary)
    try:
        yield temporary
    finally:
        _writing.discard(temporary)
        _remove_if_possible(temporary)


@contextlib.contextmanager
def atomic_write(path, suffix=""):
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
                mark(target, temporary)
                _sync(temporary)
                _replace(target, temporary)
                _sync_one(target.parent)
                remove_stale_files(target.parent, target.name)
    except OSError as error:
        raise RunFailed(f"Cannot write {path}: {error.strerror or error}.") from error


def write_next(folder, fill, next_name):
    """Write a new folder with `fill(temporary)` and return its path.

    Its name is `next_name()`, or a later one if another process takes that name first.
    """
    target = folder / next_name()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary_path(target) as temporary:
            fill(temporary)
            _sync(temporary)
            while True:
                try:
                    os.rename(temporary, target)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    target = folder / next_name()
                else:
                    break
            _sync_one(folder)
            remove_stale_files(folder, target.name)
    except OSError as error:
        raise RunFailed(f"Cannot write {target}: {error.strerror or error}.") from error
    return target


def remove_stale_files(folder, target=None):
    """Remove temporary files of dead processes from a folder, of `target` or of any file."""
    # Without `target`, any matching hidden file is removed: only do this in the package's folders.
    with contextlib.suppress(OSError):
        for path in sorted(Path(folder).iterdir()):
            temporary = path.with_name(path.name.removesuffix(_OLD))
            match = _NAME.fullmatch(temporary.name)
            if not match or target not in (None, match["target"]):
                continue
            if temporary in _writing or _is_in_use(path, match):
                continue
            home = path.with_name(match["target"])
            # The process died between the two renames: restore the old folder.
            if path != temporary and not home.exists():
                with contextlib.suppress(OSError):
                    path.rename(home)
            else:
                _remove_if_possible(path)


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


def user_path(path):
    """Return a path with `~` replaced by the home folder; raise `BadUse` if there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise BadUse(f"There is no home folder for {path}: give the whole path.") from error


def check_writable(folder, hint="model_dir"):
    """Create `folder` if needed; raise `RunFailed` if it is not writable."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary_path(folder / "probe") as probe:
            probe.touch()
    except OSError as error:
        raise RunFailed(
            f"Cannot write in the folder {folder}: {error.strerror or error}.", hint
        ) from error


@contextlib.contextmanager
def locked(path, held, note):
    """Lock the file `path`; if another process has the lock, call `held`, then wait."""
    import filelock

    path = Path(path)
    lock = filelock.FileLock(path)
    try:
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            held()
            lock.acquire(timeout=-1)
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _LOCKLESS:
            raise RunFailed(f"Cannot lock {path.parent}: {error.strerror or error}.") from error
        note(f"{path.parent} cannot be locked here: see that nothing else writes in it.")
    # Keep the lock file: another process may already hold a lock on it.
    try:
        yield
    finally:
        lock.release()


def _remove_if_possible(path):
    with contextlib.suppress(RunFailed):
        remove(path)


def _is_in_use(path, match):
    """Return whether the process that a temporary path names may still write to it."""
    if match["space"] in (None, _process_space()):
        return _is_alive(int(match["process"], 16))
    return time.time() - os.lstat(path).st_mtime < _FOREIGN


@functools.cache
def _process_space():
    """Return four hex digits of where process ids are unique: this machine and container."""
    space = platform.node()
    with contextlib.suppress(OSError):
        space += f" {os.stat('/proc/self/ns/pid').st_ino}"
    return hashlib.sha256(space.encode()).hexdigest()[:4]


def _is_alive(process):
    """Return whether another process with this id runs."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


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
    old = temporary.with_name(f"{temporary.name}{_OLD}")
    try:
        os.rename(target, old)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # An overlay file system does not rename folders of its lower layers.
        shutil.copytree(target, old, symlinks=True)
        remove(target)
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
