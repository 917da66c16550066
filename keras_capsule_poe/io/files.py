"""Files that are never half-written: written beside, then renamed."""

import contextlib
import json
import os
import shutil
import uuid
from pathlib import Path

from keras_capsule_poe.errors import RunFailed


@contextlib.contextmanager
def beside(path, suffix=""):
    """A path next to `path` to write to, renamed to `path` when the block ends without error.

    Whatever stood at `path` is replaced; after an error nothing is left behind.

    Args:
        path: The file or folder to end up with.
        suffix: Ending of the temporary name, where a writer insists on one.

    Raises:
        RunFailed: If it cannot be written, for instance because the disk is full.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if path.is_dir():
            old = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old")
            os.rename(path, old)
            os.rename(temporary, path)
            shutil.rmtree(old)
        else:
            os.replace(temporary, path)
    except OSError as error:
        raise RunFailed(f"Cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_json(path, values):
    """Writes `values` as JSON, whole or not at all."""
    with beside(path) as temporary:
        temporary.write_text(json.dumps(values, indent=2) + "\n")


def read_json(path):
    """The values in a JSON file.

    Raises:
        RunFailed: If the file is not readable JSON.
    """
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise RunFailed(f"Cannot read {path}: {error}. --fresh starts over.") from error


def check_writable(folder):
    """Makes `folder` if need be.

    Raises:
        RunFailed: If it is a file, or nothing can be written in it.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{uuid.uuid4().hex[:8]}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RunFailed(
            f"Cannot write in the folder {folder}: {error.strerror}. Choose another --model-dir."
        ) from error
