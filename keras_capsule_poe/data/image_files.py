"""Image files, decoded at their full depth by Pillow."""

import contextlib
import functools
import io
import os
import re
import stat
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np

from keras_capsule_poe.data.pixels import RANGES, scaled, usual_range

BACKGROUNDS = ("black", "white")
# Formats that Pillow recognizes without decoding them, or only with another program.
_NOT_DECODED = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}
# Pillow's names of colours of 16 bits a channel, of which it keeps the upper 8.
_SIXTEEN = re.compile("(LA|RGB|RGBA|RGBX|CMYK);16[BLN]")
_OTHER_ORDER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
# Tags of TIFF files.
_PLANAR, _BITS = 284, 258


@functools.cache
def extensions():
    """Return the file extensions that the installed Pillow decodes, in lower case."""
    from PIL import Image

    known = Image.registered_extensions().items()
    return frozenset(
        extension.lower()
        for extension, kind in known
        if kind in Image.OPEN and kind not in _NOT_DECODED
    )


class UnreadableImage(Exception):
    """Error of a file that holds no readable image; its message follows the path."""


class Decoded(NamedTuple):
    """An upright image of a file."""

    # Pillow's image, of at most 8 bits a channel if there are no values.
    image: Any
    # Array (H, W, K) of more than 8 bits a channel, with as many channels as `bands`, or None.
    values: np.ndarray | None = None
    bands: str = ""
    # Value of all channels of transparent pixels, or None.
    transparent: Any = None

    @property
    def colours(self):
        """The values without alpha."""
        return self.values[..., : len(self.bands.removesuffix("A"))]


def decode(source, page=0, deep_colours=True, wanted=lambda image: True):
    """Decode an image of a file, see `Decoded`; return None unless its header is `wanted`.

    Args:
        source: path, bytes, an object whose `open("rb")` returns a file, or a Pillow image.
        page: int, the page of a TIFF file or the frame of an animation, from 0.
        deep_colours: bool; if False, colours of 16 bits are cut to 8 bits, as Pillow does.
        wanted: function of Pillow's image, before it is decoded.

    Raises:
        UnreadableImage: If there is no readable image.
    """
    from PIL import Image

    with contextlib.ExitStack() as stack:
        # Pillow warns of odd metadata and of large images.
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        try:
            if isinstance(source, Image.Image):
                return _decoded(source, "", None) if wanted(source) else None
            file = stack.enter_context(_file(source))
            image = stack.enter_context(_page(file, page))
            if not wanted(image):
                return None
            return _decoded(image, _raw_mode(image) if deep_colours else "", file)
        except UnreadableImage:
            raise
        except Image.DecompressionBombError as error:
            most = 2 * Image.MAX_IMAGE_PIXELS
            raise UnreadableImage(f"is too large, it holds more than {most:,} pixels") from error
        # Damaged files raise OSError, SyntaxError, struct.error and more.
        except Exception as error:
            raise UnreadableImage("is broken or no image") from error


def is_deep(image):
    """Return whether a Pillow image, not decoded yet, has more than 8 bits a channel."""
    return image.mode.startswith(("I", "F")) or bool(_SIXTEEN.fullmatch(_raw_mode(image)))


def _file(source):
    """Open a source of an image for reading."""
    if isinstance(source, bytes):
        return io.BytesIO(source)
    if not isinstance(source, (str, os.PathLike)):
        with source.open("rb") as file:
            return io.BytesIO(file.read())
    try:
        # Opening a FIFO would wait for a writer.
        found = os.stat(source)
        if not stat.S_ISREG(found.st_mode):
            raise UnreadableImage("is a folder" if stat.S_ISDIR(found.st_mode) else "is no file")
        if not found.st_size:
            raise UnreadableImage("is broken or no image: it is empty")
        return open(source, "rb")
    except (OSError, ValueError) as error:
        if "://" in str(source):
            raise UnreadableImage("is a URL: download the file first") from error
        # ValueError: a null byte in the name.
        reason = getattr(error, "strerror", None) or error
        raise UnreadableImage(f"cannot be read: {reason}") from error


def _page(file, page):
    """Return Pillow's image of a page of a file, not decoded yet."""
    from PIL import Image

    file.seek(0)
    image = Image.open(file)
    if page:
        try:
            image.seek(page)
        except EOFError as error:
            raise UnreadableImage(f"has no page {page}, counted from 0") from error
    return image


def _raw_mode(image):
    """Return Pillow's name for the pixels of a file, such as "RGB;16B"."""
    tiles = getattr(image, "tile", None)
    if not tiles:
        return ""
    found = tiles[0][3]
    return str(found if isinstance(found, str) else (found or ("",))[0])


def _set_raw_mode(image, name):
    """Make Pillow take the pixels of a file, which are not decoded yet, for others."""
    for number, tile in enumerate(image.tile):
        given = tile[3]
        changed = name if isinstance(given, str) else (name, *given[1:])
        is_named = hasattr(tile, "_replace")
        image.tile[number] = tile._replace(args=changed) if is_named else (*tile[:3], changed)


def _decoded(image, raw_mode, file):
    """Decode a page of a file, see `Decoded`."""
    from PIL import ImageOps

    transparent, tags = image.info.get("transparency"), getattr(image, "tag_v2", {})
    if raw_mode and tags.get(_PLANAR) == 2 and 16 in np.atleast_1d(tags.get(_BITS)):
        # Pillow takes them for others.
        raise UnreadableImage("has a plane for each colour of 16 bits: save it without planes")
    if raw_mode == "LA;16B":
        # Pillow has no mode for it. Four bytes a pixel: upper and lower ones of grey and alpha.
        _set_raw_mode(image, "RGBA")
        four = np.asarray(ImageOps.exif_transpose(image)).astype(np.uint16)
        return Decoded(None, four[..., ::2] * 256 + four[..., 1::2], "LA")
    if _SIXTEEN.fullmatch(raw_mode):
        upper = np.asarray(ImageOps.exif_transpose(image)).astype(np.uint16)
        page = image.tell()
        with _page(file, page) as again:
            # With the other order of bytes, Pillow keeps the lower ones.
            _set_raw_mode(again, raw_mode[:-1] + _OTHER_ORDER[raw_mode[-1]])
            lower = np.asarray(ImageOps.exif_transpose(again))
        return Decoded(None, upper * 256 + lower, image.mode, transparent)
    upright = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        is_known = image.mode.startswith("I;16") and bool(raw_mode)
        values = np.asarray(upright)[..., np.newaxis]
        return Decoded(None, values, "L", transparent if is_known else None)
    return Decoded(upright)


def eight_bits(found, max_value=None, max_float=None, name="an image"):
    """Return the Pillow image of `Decoded`, of at most 8 bits a channel."""
    from PIL import Image

    if found.values is None:
        return found.image
    values, alpha, mode = found.colours, None, found.bands
    if mode in ("LA", "RGBA"):
        alpha = found.values[..., -1:]
    is_float = values.dtype.kind == "f"
    white = (max_float if is_float else max_value) or usual_range(values)
    units = scaled(values, white, name)
    if alpha is not None:
        # Some programs write all channels with the bits of the camera, others alpha with 16.
        alpha = scaled(alpha, white if alpha.max() <= white else RANGES[-1], name)
    elif found.transparent is not None:
        alpha = 255 * (values != found.transparent).any(axis=-1, keepdims=True).astype(np.uint8)
        mode = {"L": "LA", "RGB": "RGBA"}[mode]
    if alpha is not None:
        units = np.concatenate([units, alpha], axis=-1)
    return Image.frombytes(mode, units.shape[1::-1], units.tobytes())


def on_background(image, background):
    """Return a Pillow image of at most 8 bits a channel as uint8 (H, W, C), C 1 or 3."""
    is_grey = image.mode in ("1", "L", "LA", "La")
    palette = image.mode in ("P", "PA")
    if image.has_transparency_data:
        if background is None:
            contrast = dict.fromkeys(BACKGROUNDS, 0.0)
            add_contrast(image, contrast)
            background = max(contrast, key=contrast.get)
        image = composed(image, background)
    array = np.asarray(image.convert("RGB"))
    return array[..., :1] if is_grey or (palette and (array == array[..., :1]).all()) else array


def composed(image, background):
    """Return an image in front of a background."""
    from PIL import Image

    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, background), image)


def add_contrast(image, contrast):
    """Add the contrast of a transparent image on each background to a dict."""
    for name in contrast:
        contrast[name] += np.asarray(composed(image, name).convert("L")).std()
