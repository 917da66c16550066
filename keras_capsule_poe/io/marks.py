"""Marks in files that commands write, so that a command replaces earlier outputs of its own only.

A mark is a comment of the file's format: it changes nothing that a reader of the format shows.
"""

import contextlib
import contextvars
import zipfile
import zlib
from pathlib import Path

# Path and mark of the file that the current command writes.
_CURRENT: contextvars.ContextVar[tuple[Path, bytes] | None] = contextvars.ContextVar(
    "mark", default=None
)
# A mark is within so many bytes of the beginning or the end of a file.
_NEAR = 4096
_MARK = b"written by keras-capsule-poe, capspoe "


def marked_output(path, command):
    """Mark the file `path`, when it is written, as an output of a command; return nothing."""
    _CURRENT.set((Path(path).resolve(), _mark(command)))


def is_output(path, command):
    """Return whether a file has the mark of a command; for pictures and pages, of any command."""
    is_data = Path(path).suffix.lower() in (".npz", ".json")
    wanted = _mark(command) if is_data else _MARK
    with contextlib.suppress(OSError), open(path, "rb") as file:
        start = file.read(_NEAR)
        file.seek(max(0, file.seek(0, 2) - _NEAR))
        return wanted in start + file.read()
    return False


def mark(path, temporary):
    """Mark a file that will be renamed to `path`, if the current command writes that one."""
    wanted, text = _CURRENT.get() or (None, b"")
    if wanted != Path(path).resolve() or not temporary.is_file():
        return
    kind = wanted.suffix.lower()
    if kind == ".npz":
        with zipfile.ZipFile(temporary, "a") as archive:
            archive.comment = text
    elif kind in _MARKED:
        temporary.write_bytes(_MARKED[kind](temporary.read_bytes(), text))


def _mark(command):
    return _MARK + command.encode()


def _in_png(content, text):
    chunk = b"tEXtSoftware\0" + text
    sealed = (len(chunk) - 4).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
    # Before the last chunk, IEND, of twelve bytes.
    return content[:-12] + sealed + content[-12:]


def _in_jpeg(content, text):
    # After the first two bytes, a comment with its length.
    return content[:2] + b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text + content[2:]


def _in_json(content, text):
    return content.replace(b"{", b'{\n  "written_by": "' + text + b'",', 1)


def _in_markup(content, text):
    return content + b"<!-- " + text + b" -->\n"


def _at_end(content, text):
    # Readers of WebP stop at the length in its header, those of PDF skip comments.
    return content + b"\n% " + text + b"\n"


_MARKED = {
    ".png": _in_png,
    ".jpg": _in_jpeg,
    ".jpeg": _in_jpeg,
    ".webp": _at_end,
    ".pdf": _at_end,
    ".svg": _in_markup,
    ".html": _in_markup,
    ".json": _in_json,
}
