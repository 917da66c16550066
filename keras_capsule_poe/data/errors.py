"""The one error that the data layer raises."""


class DataError(ValueError):
    """Images that cannot be used, or an argument that asks for the impossible.

    The message is one line: what was asked, what was received and what to do.
    """


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
