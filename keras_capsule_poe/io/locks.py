"""Locks between processes, which end with the process that holds them."""

import contextlib
import errno
from pathlib import Path

from keras_capsule_poe.errors import RunFailed

# What a file system that has no locks says.
_LOCKLESS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


@contextlib.contextmanager
def locked(path, held, note):
    """While open, no other process has this block open for the same file.

    Args:
        path: The lock's file, which stays; its folder exists.
        held: Function of nothing, called if another process holds it: it raises an error, or
            returns, and then the lock is waited for.
        note: Function of a line, told where the file system has no locks.

    Raises:
        RunFailed: If the file cannot be written.

    Examples:

    >>> import tempfile
    >>> with locked(Path(tempfile.mkdtemp()) / ".lock", held=None, note=print):
    ...     print("alone")
    alone
    """
    import filelock

    path = Path(path)
    lock = filelock.FileLock(path)
    try:
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            held()
            lock.acquire(timeout=-1)
    except NotImplementedError:
        note(f"{path.parent} cannot be locked here: see that nothing else writes in it.")
    except OSError as error:
        if error.errno not in _LOCKLESS:
            raise RunFailed(f"Cannot lock {path.parent}: {error.strerror or error}.") from error
        note(f"{path.parent} cannot be locked here: see that nothing else writes in it.")
    # Its file stays: whoever removed it could remove the lock of the next process.
    try:
        yield
    finally:
        lock.release()
