"""File locks between processes, released when a process ends."""

import contextlib
import errno
from pathlib import Path

from keras_capsule_poe.errors import RunFailed

# Errors of file systems without locks; `note` then gets a warning.
_LOCKLESS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


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
    except NotImplementedError:
        note(f"{path.parent} cannot be locked here: see that nothing else writes in it.")
    except OSError as error:
        if error.errno not in _LOCKLESS:
            raise RunFailed(f"Cannot lock {path.parent}: {error.strerror or error}.") from error
        note(f"{path.parent} cannot be locked here: see that nothing else writes in it.")
    # Keep the lock file: another process may already hold a lock on it.
    try:
        yield
    finally:
        lock.release()
