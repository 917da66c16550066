"""Tables of figures as text."""

import math
import numbers


def cell(value):
    """One value as text.

    Args:
        value: str, int, float, `None`, or a pair (mean, deviation) of numbers.

    Returns:
        str: floats with 3 significant digits, pairs as 'mean ± deviation', `None` as '-'.

    Examples:

    >>> cell(0.12345)
    '0.123'
    """
    if value is None:
        return "-"
    if isinstance(value, (tuple, list)):
        mean, deviation = value
        return f"{cell(mean)} ± {cell(deviation)}"
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return _three_digits(float(value))
    return str(value)


def _three_digits(value):
    text = f"{value:#.3g}"
    # Plain digits for as long as people read them more easily than a power of ten.
    if math.isfinite(value) and 1e3 <= abs(float(text)) < 1e6:
        text = f"{float(text):.0f}"
    return text.removesuffix(".")


def cells(columns, rows):
    """A table as text, the header first.

    Args:
        columns: list of str, what the values are; the names of the rows have no heading.
        rows: list of (name, values...), values as for `cell`; those missing at the end are '-'.

    Returns:
        list of lists of str, all of one length.

    Raises:
        ValueError: If a row has more values than there are columns.

    Examples:

    >>> cells(["value"], [("Images", 7)])
    [['', 'value'], ['Images', '7']]
    """
    for row in rows:
        if len(row) > len(columns) + 1:
            raise ValueError(f"A row has at most {len(columns)} values. Received: {tuple(row)}")
    padded = ((*row, *[None] * (len(columns) + 1 - len(row))) for row in rows)
    return [["", *columns], *([cell(value) for value in row] for row in padded)]


def text_table(columns, rows):
    """A table as aligned plain text, names to the left and values to the right.

    Args:
        columns, rows: See `cells`.

    Returns:
        str, one line a row.

    Examples:

    >>> print(text_table(["value"], [("Accuracy", 0.5)]))
              value
    Accuracy  0.500
    """
    table = cells(columns, rows)
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in table
    )
