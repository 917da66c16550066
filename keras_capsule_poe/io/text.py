"""Names as text that any terminal and any figure can show."""

import contextlib
import shutil
import sys
import textwrap
import unicodedata

# Kinds of characters that break lines, move the cursor or cannot be written.
_ESCAPED = {"Cc", "Cs", "Zl", "Zp"}
# They turn the direction of what follows.
_TURNING = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
# Widths of a terminal's columns that a name may have.
NAME = 40


def printable(name, most=None):
    r"""Return a name on one line, in at most `most` columns; the middle of a longer one is cut.

    >>> printable("a\nb"), printable("abcdefghijklmnop", 9)
    ('a\\nb', 'abc...nop')
    """
    # File names that are no text hold surrogates.
    text = str(name)
    data = text.encode("utf-8", "surrogateescape" if _is_of_bytes(text) else "surrogatepass")
    text = "".join(map(_escaped, data.decode("utf-8", "backslashreplace")))
    if most is None or width(text) <= most:
        return text
    kept = max(most - 3, 2)
    return f"{_first(text, kept - kept // 2)}...{_first(text[::-1], kept // 2)[::-1]}"


def class_word(number, names=None, most=NAME):
    """Return the name of a class on one line, not too long, or its number."""
    return printable(names[number], most) if number in range(len(names or ())) else str(number)


def _is_of_bytes(text):
    """Return whether all surrogates of a text stand for bytes."""
    return all("\udc80" <= letter <= "\udcff" for letter in text if "\ud800" <= letter <= "\udfff")


def _escaped(letter):
    if unicodedata.category(letter) in _ESCAPED or letter in _TURNING:
        return letter.encode("unicode_escape").decode()
    return letter


def _first(text, columns):
    """Return the letters at the start of a text that fit into some columns."""
    for end in range(len(text), 0, -1):
        if width(text[:end]) <= columns:
            return text[:end]
    return ""


def width(text):
    """Return the number of columns of a text: two for each Chinese, Japanese or Korean letter.

    >>> width("cat"), width("猫")
    (3, 2)
    """
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def writable(text, stream=None):
    """Return a text whose letters a stream, by default the standard output, can write."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def for_terminal(text, stream=None):
    """Return a text whose lines break between words if a stream, by default stdout, is a terminal.

    Words that are longer than a line, such as paths, stay whole.
    """
    stream = sys.stdout if stream is None else stream
    if stream is None or not stream.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    return "\n".join(_wrapped(line, columns) for line in text.split("\n"))


def _wrapped(line, columns):
    if width(line) <= columns:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    whole = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": indent}
    return textwrap.fill(line, columns, **whole)


@contextlib.contextmanager
def replaced_letters():
    """Context in which the standard outputs replace letters that they cannot write."""
    with contextlib.ExitStack() as stack:
        for stream in (sys.stdout, sys.stderr):
            before = getattr(stream, "errors", None)
            if before in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
                stack.callback(_restore, stream, before)
        yield


def _restore(stream, errors):
    # A closed output cannot be changed.
    with contextlib.suppress(ValueError, OSError):
        stream.reconfigure(errors=errors)
