"""Errors of this package. A message names the cause, never a command-line flag."""

import contextlib
import difflib


class CapspoeError(Exception):
    """Base class of all errors that this package raises on purpose, with one-line messages."""

    def __init__(self, message, hint=None):
        super().__init__(message)
        # A remedy such as "image_size" or "stage_fresh:encoder", or a tuple of alternatives. The
        # command line translates it into a hint.
        self.hint = hint


class BadUse(CapspoeError, ValueError):
    """Invalid request; nothing was started and no file has changed."""


class DataError(BadUse):
    """Images that cannot be used, or an invalid argument."""


class ConfigError(BadUse):
    """Invalid configuration; the message names the setting."""


class RunFailed(CapspoeError, RuntimeError):
    """A run that cannot continue; the files on disk stay as they were."""


class Diverged(RunFailed):
    """Training produced a value that is not finite."""


class AnotherRun(RunFailed):
    """A folder that holds a run of other settings, images or initial weights."""


class TrainingWarning(UserWarning):
    """Training that ended without having learned; the message names the likely cause."""


def is_lack_of_memory(error):
    """Return whether an error says that there is too little memory."""
    # TensorFlow's memory error is not a MemoryError.
    return isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"


def lack_of_memory(error):
    """Return the `RunFailed` of one line of an error for lack of memory."""
    return RunFailed(f"There is not enough memory ({in_short(error)}). Ask for less at once.")


@contextlib.contextmanager
def enough_memory():
    """Context that turns an error for lack of memory into a `RunFailed` of one line."""
    try:
        yield
    except Exception as error:
        if not is_lack_of_memory(error):
            raise
        raise lack_of_memory(error) from error


def in_short(error):
    """Return the start of an error message on one line."""
    return " ".join(str(error).split())[:200]


def first_line(error):
    """Return the first non-empty line of another library's error message."""
    for line in str(error).splitlines():
        if line.strip():
            return line.strip().rstrip(".")
    return type(error).__name__


@contextlib.contextmanager
def reading(text, hint=None):
    """Turn every error but a `DataError` into one of a text and the first line of the error."""
    try:
        yield
    except DataError:
        raise
    # Parsers and other packages raise errors of any kind for damaged and foreign files.
    except Exception as error:
        raise DataError(f"{text} ({first_line(error)}).", hint) from error


def meant(word, known):
    """Return " Did you mean `x`?" with the known name nearest to a word, or no text.

    >>> meant("capsule", ["seed", "capsules"])
    ' Did you mean `capsules`?'
    """
    near = difflib.get_close_matches(str(word).lower(), list(dict.fromkeys(known)), n=1)
    return f" Did you mean `{near[0]}`?" if near else ""


def listing(names, most=10):
    """Return `a, b, c` as text, with at most `most` names so that a message stays short."""
    names = list(names)
    shown = ", ".join(str(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def counted(count, noun):
    """Return a number of things as text: `1 file`, `2 files`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
