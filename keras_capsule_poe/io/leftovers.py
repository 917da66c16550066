"""Temporary paths that name their process, and removal of stale ones."""

import contextlib
import os
import re
import shutil
import uuid
from pathlib import Path

# Six hex digits of the process id, two random ones, then a suffix if the writer needs one.
_NAME = re.compile(r"\.(?P<target>.+)\.(?P<process>[0-9a-f]{6})[0-9a-f]{2}(\.\w+)?")
_OLD = ".old"  # marks a folder that was set aside
# Temporary paths in use by this process.
_writing: set[Path] = set()


@contextlib.contextmanager
def temporary_path(target, suffix=""):
    """Yield a hidden path next to `target` that names this process; delete it afterwards."""
    token = f"{os.getpid():06x}{uuid.uuid4().hex[:2]}"
    temporary = target.with_name(f".{target.name}.{token}{suffix}")
    _writing.add(temporary)
    try:
        yield temporary
    finally:
        _writing.discard(temporary)
        _delete(temporary)


def put_aside(temporary):
    """Return the path for an old folder while the one at `temporary` replaces it."""
    return temporary.with_name(f"{temporary.name}{_OLD}")


def remove_leftovers(folder, target=None):
    """Remove stale temporary files of dead processes from a folder, if permitted."""
    # Without `target`, any matching hidden file is removed: only do this in the package's folders.
    with contextlib.suppress(OSError):
        for path in sorted(Path(folder).iterdir()):
            temporary = path.with_name(path.name.removesuffix(_OLD))
            match = _NAME.fullmatch(temporary.name)
            if not match or target not in (None, match["target"]):
                continue
            if temporary in _writing or _is_alive(int(match["process"], 16)):
                continue
            home = path.with_name(match["target"])
            # The process died between the two renames: restore the old folder.
            if path != temporary and not home.exists():
                with contextlib.suppress(OSError):
                    path.rename(home)
            else:
                _delete(path)


def _delete(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()


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
