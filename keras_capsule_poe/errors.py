"""What can go wrong, in words that name the cause: what and why, never which flag mends it."""

from contextlib import contextmanager


class CapspoeError(Exception):
    """The root of every error that this package raises on purpose; its message is one line.

    Args:
        message: str, what is wrong and why.
        mend: What would mend it, for a program that has a way to: a word such as `"image_size"`,
            with a name after a colon where it needs one, `"stage_fresh:encoder"`; or a tuple of
            such words, any of which would do.

    Examples:

    >>> error = DataError("the images differ in size", mend="image_size")
    >>> str(error), error.mend
    ('the images differ in size', 'image_size')
    """

    def __init__(self, message, mend=None):
        super().__init__(message)
        self.mend = mend


class BadUse(CapspoeError, ValueError):
    """Something was asked for that cannot be: nothing was begun, nothing is lost."""


class DataError(BadUse):
    """Images that cannot be used, or an argument that asks for the impossible."""


class ConfigError(BadUse):
    """A configuration that cannot be used; the message names the setting."""


class RunFailed(CapspoeError, RuntimeError):
    """What was begun cannot go on; what is on disk stays as it was."""


@contextmanager
def in_section(section):
    """What a constructor says of an argument, as a `ConfigError` that names the section.

    Examples:

    >>> with in_section("encoder"):
    ...     raise ValueError("`dim` must be at least 1.\\n Received: dim=0")
    Traceback (most recent call last):
    keras_capsule_poe.errors.ConfigError: encoder: `dim` must be at least 1. Received: dim=0
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{section}: {' '.join(str(error).split())}") from error


def first_line(error):
    """The first line with words of another library's error, for a message of ours.

    Examples:

    >>> first_line(ValueError("no such column.\\nTraceback ..."))
    'no such column'
    """
    for line in str(error).splitlines():
        if line.strip():
            return line.strip().rstrip(".")
    return type(error).__name__


def listing(names, most=10):
    """`a, b, c`, cut after `most` names so that a message stays one readable line.

    Examples:

    >>> listing(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    names = list(names)
    shown = ", ".join(str(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
