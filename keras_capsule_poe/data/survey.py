"""What the files of a set have in common, by a sample of them: background and range."""

import dataclasses

from keras_capsule_poe.data.image_files import (
    BACKGROUNDS,
    UnreadableImage,
    add_contrast,
    decode,
    eight_bits,
    is_deep,
)
from keras_capsule_poe.data.pixels import RANGES, usual_range
from keras_capsule_poe.data.preparation import STRETCHED, USES
from keras_capsule_poe.errors import DataError

# Files per part that determine background and range.
SURVEYED = 1000


def survey(files, given):
    """Complete the background and the ranges of a `Preparation` by a sample of a set's files.

    Args:
        files: iterable of pairs of a file, as `decode` takes it, and a page.
        given: `Preparation`, whose background and `max_value` may be None.

    Returns:
        `Preparation`, and a tuple of notes on it.
    """
    contrast = dict.fromkeys(BACKGROUNDS, 0.0)
    # Of each file its own white, its largest value and its name.
    levels = {"max_value": [], "max_float": []}

    def wanted(image):
        return image.has_transparency_data or is_deep(image)

    for file, page in files:
        try:
            found = decode(file, page, given.deep_colours, wanted)
            if found is None:
                continue
            image = eight_bits(found, given.max_value)
        except (UnreadableImage, DataError):
            # Reading reports it.
            continue
        if found.values is not None:
            name = "max_float" if found.values.dtype.kind == "f" else "max_value"
            highest = float(found.colours.max())
            # A black image says nothing.
            if highest > 0:
                levels[name].append((usual_range(found.colours), highest, file))
        if image.has_transparency_data:
            add_contrast(image, contrast)
    background, notes = given.background, []
    if background is None:
        is_white = contrast["white"] > contrast["black"]
        background = "white" if is_white else "black"
        if is_white:
            notes.append(
                "Transparent images are set on white, where they have more contrast than on black. "
                "`background` changes it."
            )
    found = {"background": background}
    for name, values in levels.items():
        found[name], more = _white(name, values, given.max_value)
        notes += more
    if given.max_value and not any(levels.values()):
        notes.append("`max_value` changes nothing: no image has more than 8 bits.")
    return dataclasses.replace(given, **found), tuple(notes)


def _white(name, values, given):
    """Return what is white in files of a kind, by a sample of their ranges, and notes on it."""
    is_float = name == "max_float"
    what = "Images of floats" if is_float else "Images of more than 8 bits"
    usual = 1 if is_float else RANGES[-1]
    white = max((each for each, _, _ in values), default=usual)
    if given and is_float and white == 1:
        return 1, ["`max_value` changes nothing for images of floats from 0 to 1."] * bool(values)
    if given:
        return given, []
    notes = []
    if white != usual:
        highest = max(value for _, value, _ in values)
        notes.append(
            f"{what} hold values up to {highest:g}: {white:g} is white. `max_value` changes it."
        )
    bright = [file for _, value, file in values if value > white / 4]
    if 0 < len(bright) < len(values) / 2:
        others = max(value for _, value, file in values if value <= white / 4)
        notes.append(
            f"{what} are dark but for {len(bright)} of {len(values)}, {bright[0]} first: the "
            f"others hold values up to {others:g} of {white:g}. `max_value` changes it."
        )
    return white, notes


def recorded(found, given, uses):
    """Return the `Preparation` to keep of a set of files, by what any of them has used.

    Args:
        found: `Preparation` that the files were read with.
        given: `Preparation` before `survey`. What no file has used stays as it was given, so that
            it is decided for each new image.
        uses: int, the bits of `Pixels.uses` of all files.
    """
    kept = {name: getattr(found if uses & bit else given, name) for name, bit in USES.items()}
    return dataclasses.replace(found, keeps_proportions=not uses & STRETCHED, **kept)
