"""Fonts that have the letters of a text, for figures and pictures."""

import contextlib
import functools
import warnings

# The highest code of the letters that the fonts of matplotlib and Pillow are known to have.
_KNOWN = 0x24F
# Fonts that draw a box for any letter.
_BOXES = ("LastResort", "AdobeBlank", "NotoSans-Blank")


def families(text):
    """Return the names of installed fonts for the letters that matplotlib's own font lacks."""
    return list(dict.fromkeys(font.name for font in _fonts(text)))


def font_file(text):
    """Return the path of an installed font for the letters that Pillow's own font lacks."""
    return next((font.fname for font in _fonts(text)), None)


def _fonts(text):
    letters = sorted({letter for letter in text if ord(letter) > _KNOWN})
    found = {letter: _font(letter) for letter in letters}
    lacking = "".join(letter for letter, font in found.items() if font is None)
    if lacking:
        _say(lacking)
    return [font for font in found.values() if font]


@functools.cache
def _font(letter):
    """Return the first installed font that has a letter, matplotlib's own first, or None."""
    from matplotlib import font_manager

    for entry in sorted(font_manager.fontManager.ttflist, key=_rank):
        if not any(name in entry.fname for name in _BOXES) and _has(entry.fname, letter):
            return entry
    return None


def _rank(entry):
    """Return the place of a font: matplotlib's own, then upright ones of usual weight."""
    is_own = entry.name == "DejaVu Sans"
    return not is_own, entry.style != "normal", entry.weight not in (400, "normal", "regular")


def _has(path, letter):
    from matplotlib.ft2font import FT2Font

    try:
        return FT2Font(path).get_char_index(ord(letter)) > 0
    # A damaged font.
    except (OSError, RuntimeError):
        return False


@functools.cache
def _say(letters):
    """Warn, once for the same letters, that figures cannot show them."""
    shown = letters if len(letters) < 10 else f"{letters[:10]}..."
    warnings.warn(
        f"No installed font has the letters {shown}: figures show boxes in their place. "
        "Install one that has them, such as Noto Sans CJK.",
        UserWarning,
        stacklevel=2,
    )


@contextlib.contextmanager
def without_warnings():
    """Context without matplotlib's warning of each letter that a font lacks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        warnings.filterwarnings("ignore", ".* does not have a glyph", UserWarning)
        yield
