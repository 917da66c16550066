"""Marks in files that commands write, so that a command replaces earlier outputs of its own only.

A mark is a comment of the file's format: it changes nothing that a reader of the format shows.
"""

import contextlib
import contextvars
import json
import zipfile
from pathlib import Path

# Path and mark of the file that the current command writes.
_CURRENT: contextvars.ContextVar[tuple[Path, str] | None] = contextvars.ContextVar(
    "mark", default=None
)
# A mark is within so many bytes of the beginning or the end of a file.
_NEAR = 2**16
_MARK = "written by keras-capsule-poe, capspoe "


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
        return wanted.encode() in start + file.read()
    return False


def mark(path, temporary):
    """Mark arrays, JSON or a page that will be renamed to `path`, if the command writes that."""
    text = _text_for(path)
    if not text or not temporary.is_file():
        return
    kind = Path(path).suffix.lower()
    if kind == ".npz":
        with zipfile.ZipFile(temporary, "a") as archive:
            archive.comment = text.encode()
    elif kind == ".json":
        values = json.loads(temporary.read_text())
        if isinstance(values, dict):
            values = {"written_by": text, **values}
            temporary.write_text(json.dumps(values, indent=2) + "\n")
    elif kind == ".html":
        temporary.write_bytes(temporary.read_bytes() + f"<!-- {text} -->\n".encode())


def pillow_options(path):
    """Return the options of Pillow's `save` that mark a picture, if the command writes that one."""
    text = _text_for(path)
    if not text:
        return {}
    from PIL import ExifTags, Image, PngImagePlugin

    if Path(path).suffix.lower() == ".png":
        info = PngImagePlugin.PngInfo()
        info.add_text("Software", text)
        return {"pnginfo": info}
    exif = Image.Exif()
    exif[ExifTags.Base.Software] = text
    return {"exif": exif}


def matplotlib_options(path):
    """Return the same for matplotlib's `savefig`."""
    kind, text = Path(path).suffix.lower(), _text_for(path)
    if not text:
        return {}
    if kind not in (".png", ".pdf", ".svg"):
        return {"pil_kwargs": pillow_options(path)}
    return {"metadata": {"Software" if kind == ".png" else "Creator": text}}


def _text_for(path):
    """Return the mark of a file that the current command writes, or no text for another one."""
    wanted, text = _CURRENT.get() or (None, "")
    return text if wanted == Path(path).resolve() else ""


def _mark(command):
    return _MARK + command
