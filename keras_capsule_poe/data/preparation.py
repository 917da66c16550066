"""From files and arrays of any kind to the pixels of a model."""

import dataclasses
import math
import os
import warnings
from typing import Any, NamedTuple

import numpy as np
import pydantic

from keras_capsule_poe.data.image_files import (
    BACKGROUNDS,
    UnreadableImage,
    decode,
    eight_bits,
    on_background,
)
from keras_capsule_poe.data.mapping import chunks
from keras_capsule_poe.data.pixels import fit_image, scaled, size_given, usual_range
from keras_capsule_poe.errors import DataError

INVERT = ("auto", "yes", "no")
# Proportions that differ by less count as equal.
_TOLERANCE = 0.02
# What a file has and another one may not have: bits of `Pixels.uses`.
USES = {"max_value": 1, "max_float": 2, "background": 4}
STRETCHED = 8
# Images whose borders are looked at together.
_AT_ONCE = 1000
# Grey levels of a border that is dark, and share of the training images that must have one.
_DARK, _MOST = 64, 0.9


@dataclasses.dataclass(frozen=True)
class Preparation:
    """How files and arrays become the pixels of a model, as its training images did.

    Attributes:
        image_size: tuple (H, W) in pixels; None: the size of each image.
        channels: int, 1 grey, 2 a stereo pair, 3 colour; None: grey or colour, as each image.
        background: `"black"` or `"white"`, behind transparent pixels; None: the one on which an
            image has more contrast.
        max_value: number that is white in images of more than 8 bits; None: the largest one of as
            many bits as the values of an image need.
        max_float: the same for images of floats.
        keeps_proportions: bool. True: images of other proportions are padded. False: they are
            stretched.
        invert_above: int or None. Images with a brighter border are inverted.
        invert_below: int or None. Images with a darker border are inverted.
        resampling: str, Pillow's filter.
        deep_colours: bool. False: colours of 16 bits are cut to 8, as former versions did.
        resized_from: tuple (H, W), the size of the training arrays before they were resized; None:
            they were not. New arrays of this size are resized likewise.

    Example:

    >>> Preparation((28, 28), 1, background="white").describe()
    '28x28 grey, transparent on white, stretched'
    """

    image_size: tuple[int, int] | None = None
    channels: int | None = None
    background: str | None = None
    max_value: float | None = None
    max_float: float | None = None
    keeps_proportions: bool = False
    invert_above: int | None = None
    invert_below: int | None = None
    resampling: str = "lanczos"
    deep_colours: bool = True
    resized_from: tuple[int, int] | None = None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Preparation":
        """Return the preparation of a result of `dataclasses.asdict`, also of a later version."""
        known = {field.name for field in dataclasses.fields(cls)}
        found = {name: value for name, value in values.items() if name in known}
        try:
            return pydantic.TypeAdapter(cls).validate_python(found)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            raise DataError(
                f"`{first['loc'][0]}` of the preparation of images is invalid: {first['msg']}. "
                f"Received: {first['input']!r:.80}"
            ) from None

    def describe(self) -> str:
        """Return a line of text."""
        kinds = {1: "grey", 2: "stereo pairs", 3: "colour"}
        parts = ["x".join(map(str, self.image_size or ("any size",)))]
        parts[0] += f" {kinds[self.channels]}" if self.channels else ""
        if self.background:
            parts.append(f"transparent on {self.background}")
        for white, what in ((self.max_value, "more than 8 bits"), (self.max_float, "floats")):
            if white:
                parts.append(f"{white:g} is white in images of {what}")
        if self.image_size:
            kept = "padded to these proportions" if self.keeps_proportions else "stretched"
            parts.append(kept)
        if self.resized_from:
            parts.append(f"resized from {'x'.join(map(str, self.resized_from))}")
        if self.invert_above is not None:
            parts.append("dark on light is inverted")
        if self.invert_below is not None:
            parts.append("light on dark is inverted")
        return ", ".join(parts)

    def completed(self, images: np.ndarray) -> "Preparation":
        """Return the preparation with size, channels and polarity of training images.

        Args:
            images: uint8 array (N, H, W, C) of prepared images.
        """
        shape = {"image_size": tuple(images.shape[1:3]), "channels": images.shape[-1]}
        return dataclasses.replace(self, **shape, **_polarity(images))


class Pixels(NamedTuple):
    """An image as the pixels of a model."""

    # uint8 array (H, W, C).
    pixels: np.ndarray
    # Lines on what was done that the user should see.
    notes: tuple[str, ...] = ()
    # Bits of what the image has used, see `recorded`.
    uses: int = 0


def prepare(source, preparation=None, page=0, invert="auto", name=None):
    """Return the `Pixels` of a file or an array, prepared as a model's training images were.

    Args:
        source: file of an image, as `decode` takes it; or array (H, W) or (H, W, C): uint8, bool,
            integers of any range, or floats in [0, 1]. C is 1, 3, 4 (with transparency), or 2
            for stereo pairs.
        preparation: `Preparation`; None: the pixels as they are.
        page: int, the page of a TIFF file or the frame of an animation, from 0.
        invert: `"yes"`, `"no"`, or `"auto"`: only dark on light for a model of light on dark
            images, or light on dark for one of dark on light images.
        name: str, names an array or the bytes of a file in errors.

    Raises:
        UnreadableImage: If a file holds no readable image.
        DataError: If values are NaN or out of range, or an array is no image.
    """
    preparation, uses = preparation or Preparation(), 0
    if hasattr(source, "__array__") and not hasattr(source, "getexif"):
        image = _array_to_bytes(np.asarray(source), preparation, name or "an image")
    else:
        name = name or (source if isinstance(source, (str, os.PathLike)) else "an image")
        found = decode(source, page, preparation.deep_colours)
        picture = eight_bits(found, preparation.max_value, preparation.max_float, name)
        if picture.has_transparency_data:
            uses |= USES["background"]
        if found.values is not None:
            uses |= USES["max_float" if found.values.dtype.kind == "f" else "max_value"]
        image = on_background(picture, preparation.background)
    return _fitted(image, preparation, invert, uses)


def read_image(
    image: Any,
    model: Any = None,
    *,
    image_size: int | tuple[int, int] | None = None,
    grey: bool | None = None,
    background: str | None = None,
    max_value: float | None = None,
    invert: str = "auto",
    page: int = 0,
) -> np.ndarray:
    """Read an image as pixels, for a model as its training images were read.

    A model knows the size, the colours, the background behind transparent pixels, the range of
    images of more than 8 bits, and whether its images are light on dark. An image of other
    proportions is padded, unless training images were stretched. What was changed is said in a
    `UserWarning`.

    Args:
        image: path of an image file; its bytes; a Pillow image; or an array (H, W) or (H, W, C),
            uint8, bool, integers of any range, or floats in [0, 1].
        model: a trained model, or its `preparation`. None: the image keeps its size and colours.
        image_size: int or (height, width) in pixels. Default: that of the model.
        grey: bool, converts to grey. Default: as the model needs.
        background: `"black"` or `"white"`, the colour behind transparent pixels. Default: that of
            the model, else the one on which the image has more contrast.
        max_value: number that is white in images of more than 8 bits. Default: that of the model,
            else the largest one of as many bits as the values need, such as 4095.
        invert: `"yes"`, `"no"` or `"auto"`. The last one inverts dark on light images for a model
            of light on dark images, and the other way round.
        page: int, the page of a TIFF file or the frame of an animation, counted from 0.

    Returns:
        uint8 array (H, W, C) in [0, 255], with C 1 (grey) or 3 (RGB), or as the model needs.

    Raises:
        DataError: If the file cannot be read, or an argument is invalid.

    Examples:

    >>> read_image(np.zeros((20, 10)), image_size=28).shape
    (28, 28, 1)
    """
    found = preparation_of(model)
    given: dict[str, Any] = {"background": background}
    given |= {"max_value": max_value, "max_float": max_value}
    if image_size is not None:
        given["image_size"] = size_given(image_size)
    if grey is not None:
        given["channels"] = 1 if grey else found.channels
    given = {key: value for key, value in given.items() if value is not None}
    if background not in (None, *BACKGROUNDS):
        raise DataError(
            f"`background` must be {' or '.join(BACKGROUNDS)}. Received: background={background!r}."
        )
    prepared = prepared_image(image, dataclasses.replace(found, **given), invert, page)
    for note in prepared.notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    return prepared.pixels


def preparation_of(model):
    """Return the `Preparation` of a model, or the one that is given, or that of no model."""
    if model is None or isinstance(model, Preparation):
        return model or Preparation()
    found = getattr(model, "preparation", None)
    if not isinstance(found, Preparation):
        raise DataError(
            "`model` must be a trained model, or the `preparation` of one. "
            f"Received: {type(model).__name__}."
        )
    return found


def prepared_image(image, preparation, invert="auto", page=0, name=None):
    """Return the result of `prepare`; raise `DataError` for anything that is no image."""
    if invert not in INVERT:
        raise DataError(f"`invert` must be auto, yes or no. Received: invert={invert!r}.")
    if isinstance(image, (list, tuple)):
        image = np.asarray(image)
    try:
        return prepare(image, preparation, page, invert, name)
    except UnreadableImage as error:
        shown = name or (image if isinstance(image, (str, os.PathLike)) else "the image")
        raise DataError(f"{shown} {error}.") from error


def _array_to_bytes(array, preparation, name):
    """Return an array (H, W) or (H, W, C) of any range as uint8 (H, W, C)."""
    received = f"Received: shape {array.shape} and dtype {array.dtype}."
    array = array[..., np.newaxis] if array.ndim == 2 else array
    channels = {1, 3, 4, *([2] if preparation.channels == 2 else ())}
    if array.ndim != 3 or not array.size or array.shape[-1] not in channels:
        wanted = ", ".join(map(str, sorted(channels)))
        raise DataError(
            f"{name} must have shape (H, W) or (H, W, C), with C one of {wanted}. {received}"
        )
    if array.dtype.kind not in "buif":
        raise DataError(f"{name} must hold integers or floats. {received}")
    if array.dtype == bool:
        array = array.astype(np.uint8) * 255
    elif array.dtype.kind in "ui" and array.max() == 1:
        raise DataError(
            f"{name} of integers must use its whole range. Received: values up to 1. Convert "
            "zeros and ones with `.astype(bool)`."
        )
    if array.dtype.kind == "f":
        array = scaled(array, preparation.max_float or 1, name)
    elif array.dtype != np.uint8:
        array = scaled(array, preparation.max_value or usual_range(array), name)
    if array.shape[-1] == 4:
        from PIL import Image

        return on_background(Image.fromarray(array), preparation.background)
    return array


def _fitted(image, preparation, invert, uses):
    """Return the `Pixels` of an image (H, W, C), uint8, with size, channels and polarity."""
    size, channels, notes = preparation.image_size, preparation.channels, []
    fits = size is None or have_proportions(image.shape, size)
    inner = size
    if not fits and preparation.keeps_proportions:
        # Resized before it is padded: padding a long strip first would take much memory.
        scale = min(size[0] / image.shape[0], size[1] / image.shape[1])
        inner = tuple(max(1, round(side * scale)) for side in image.shape[:2])
    image = fit_image(image, inner, channels in (1, 2), preparation.resampling)
    if inner != size:
        image = _padded(image, size)
        is_square = size[0] == size[1]
        notes.append(f"padded to {'a square' if is_square else f'{size[0]}x{size[1]} pixels'}")
    if channels in (2, 3) and image.shape[-1] == 1:
        image = image.repeat(channels, axis=-1)
    if invert != "no" and (kind := _polarity_of(image, preparation, invert)):
        image = 255 - image
        notes.append(kind)
    is_stretched = not (fits or preparation.keeps_proportions)
    return Pixels(image, tuple(notes), uses | STRETCHED * is_stretched)


def have_proportions(shape, size):
    """Return whether an image (H, W, ...) has the proportions of a size (H, W), nearly."""
    first, second = shape[0] * size[1], shape[1] * size[0]
    return abs(first - second) <= _TOLERANCE * max(first, second)


def _padded(image, size):
    """Return an image in the middle of a larger one, in the colour of its border."""
    whole = np.empty((*size, image.shape[-1]), np.uint8)
    whole[:] = np.median(_border(image[np.newaxis]), axis=1)[0]
    top, left = ((size[axis] - image.shape[axis]) // 2 for axis in range(2))
    whole[top : top + image.shape[0], left : left + image.shape[1]] = image
    return whole


def _border(images):
    """Return the pixels (N, P, C) along the four sides of images (N, H, W, C)."""
    sides = images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]
    return np.concatenate(sides, axis=1)


def _border_levels(images):
    """Return the lower end, the middle and the upper end (N,) of the grey levels of borders."""
    levels = np.sort(_border(images).mean(axis=-1), axis=1)
    return (levels[:, int(q * (levels.shape[1] - 1))] for q in (0.1, 0.5, 0.9))


def is_dark_on_light(images):
    """Return whether images (N, H, W, C) in [0, 1] are dark on light, by most of their borders."""
    _, middle, _ = _border_levels(images)
    return bool((middle > 0.5).mean() > 0.5)


def _polarity(images):
    """Return `invert_above` and `invert_below` of training images (N, H, W, C).

    No training image has a border so bright, or so dark, that it would be inverted.
    """
    brightest, darkest, dark, light = 127, 128, 0, 0
    for part in map(np.asarray, chunks(images, _AT_ONCE)):
        lower, middle, upper = _border_levels(part)
        brightest = max(brightest, math.ceil(lower.max()))
        darkest = min(darkest, math.floor(upper.min()))
        dark += (middle < _DARK).sum()
        light += (middle > 255 - _DARK).sum()
    return {
        "invert_above": brightest if dark >= _MOST * len(images) else None,
        "invert_below": darkest if light >= _MOST * len(images) else None,
    }


def _polarity_of(image, preparation, invert):
    """Return a note if an image (H, W, C) is to be inverted, or None."""
    above, below = preparation.invert_above, preparation.invert_below
    lower, _, upper = (float(level[0]) for level in _border_levels(image[np.newaxis]))
    if above is not None and lower > above:
        return "dark on light: inverted"
    if below is not None and upper < below:
        return "light on dark: inverted"
    return "inverted" if invert == "yes" else None
