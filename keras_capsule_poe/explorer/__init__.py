"""A page to play with a trained model in a browser: static files, on this machine or any host."""

import os
from pathlib import Path
from typing import Any

from keras_capsule_poe.core.arguments import whole_number
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.explorer.page import write_page
from keras_capsule_poe.explorer.server import Page, served

__all__ = ["explore"]


def explore(
    model: Any,
    images: Any = None,
    name: str = "MODEL",
    *,
    static: str | Path | None = None,
    pictures: str | Path | None = None,
    beside: tuple[Any, Any, str] | None = None,
    port: int | None = None,
) -> "Page | Path":
    """Open a page to play with a trained model, in a browser on this machine.

    The page shows what each capsule draws, and changes it by sliders with names. It encodes what
    you draw or load. The model runs in the browser; nothing is loaded from or sent to other hosts.

    Args:
        model: A trained model of any family.
        images: Test images that the page shows: array (N, H, W, C) or (N, H, W), uint8 or floats
            in [0, 1]; or what `load_images` returns, or its `test`. None: the page shows generated
            images only.
        name: String, the folder or name of the model, for the Python lines that the page shows.
        static: Path of a folder to write the page to, in place of opening it. Any static host
            serves it, as does `python -m http.server`. An earlier page there is replaced.
        pictures: Folder of the pictures of a training, for a film, or None.
        beside: A second model to compare, with its images or None, and its name: one drawing is
            shown to both. None: the page has one model.
        port: Integer, the port of the page. None: a free one.

    Returns:
        `Page` with its `local_url`; `close()` ends it. As the last line of a notebook's cell it
        shows the page. With `static`, the path of the folder.

    Raises:
        BadUse: If the model cannot be explored, the folder holds other files, the port is not
            free, or packages are missing.
        DataError: If the images are not of the model's shape, or out of range.

    Example:

    >>> import keras_capsule_poe as kcp
    >>> page = kcp.explore(kcp.load("mnist"))  # doctest: +SKIP
    """
    if not isinstance(static, (str, os.PathLike, type(None))):
        raise BadUse(f"`static` must be a path, or None. Received: static={static!r}")
    if static is not None:
        return write_page(model, static, images, name, pictures, beside)
    port = None if port is None else whole_number("port", port, 0, 65_535)
    return served(lambda folder: write_page(model, folder, images, name, pictures, beside), port)
