"""What can go wrong, in words that name the cause: what and why, never which flag mends it."""


class CapspoeError(Exception):
    """The root of every error that this package raises on purpose; its message is one line."""


class BadUse(CapspoeError, ValueError):
    """Something was asked for that cannot be: nothing was begun, nothing is lost."""


class DataError(BadUse):
    """Images that cannot be used, or an argument that asks for the impossible."""


class ConfigError(BadUse):
    """A configuration that cannot be used; the message names the setting."""


class RunFailed(CapspoeError, RuntimeError):
    """What was begun cannot go on; what is on disk stays as it was."""


def first_line(error):
    """The first line with words of another library's error, for a message of ours."""
    for line in str(error).splitlines():
        if line.strip():
            return line.strip().rstrip(".")
    return type(error).__name__


def listing(names, most=10):
    """`a, b, c`, cut after `most` names so that a message stays one readable line."""
    names = list(names)
    shown = ", ".join(str(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
