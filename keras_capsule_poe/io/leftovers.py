"""Temporary names that tell which process writes there, and what killed processes left."""

import contextlib
import os
import re
import shutil
import uuid
from pathlib import Path

# Six digits of the process, two at random; then the ending that a writer insists on, and whether
# it is what stood there before.
_NAME = re.compile(r"\.(?P<target>.+)\.(?P<process>[0-9a-f]{6})[0-9a-f]{2}(\.\w+)?")
_OLD = ".old"
# Temporary paths that blocks of this process are writing to.
_writing = set()


@contextlib.contextmanager
def temporary_path(target, suffix=""):
    """A name beside `target` that tells whose it is; nothing stands there afterwards.

    Args:
        target: Path of what will be replaced.
        suffix: Ending of the name.

    Examples:

    >>> with temporary_path(Path("notes.txt"), ".txt") as path:
    ...     path.name.startswith(".notes.txt."), path.suffix
    (True, '.txt')
    """
    token = f"{os.getpid():06x}{uuid.uuid4().hex[:2]}"
    temporary = target.with_name(f".{target.name}.{token}{suffix}")
    _writing.add(temporary)
    try:
        yield temporary
    finally:
        _writing.discard(temporary)
        _delete(temporary)


def put_aside(temporary):
    """Where a folder goes for the moment in which the one at `temporary` takes its place.

    Examples:

    >>> put_aside(Path(".1.0000beef")).name
    '.1.0000beef.old'
    """
    return temporary.with_name(f"{temporary.name}{_OLD}")


def remove_leftovers(folder, target=None):
    """Removes what killed processes left in a folder, as far as that is allowed.

    What was put aside by a process that was killed before it had put anything in its place is
    put back.

    Args:
        folder: Path; nothing is done where there is no such folder.
        target: str, the file or folder that they were writing; None: any. Other hidden files may
            have such names, so leave it out in folders of our own alone.

    Examples:

    >>> remove_leftovers(Path("nowhere"))
    """
    with contextlib.suppress(OSError):
        for path in sorted(Path(folder).iterdir()):
            temporary = path.with_name(path.name.removesuffix(_OLD))
            match = _NAME.fullmatch(temporary.name)
            if not match or target not in (None, match["target"]):
                continue
            if temporary in _writing or _is_alive(int(match["process"], 16)):
                continue
            home = path.with_name(match["target"])
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
    """Whether another process of this number runs, which may be writing."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
