"""Tables of metrics as text."""

import math
import numbers


def cell(value):
    """Return a value as text: floats with three digits, pairs as mean ± deviation, None as -."""
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
    # Plain digits are easier to read than a power of ten.
    if math.isfinite(value) and 1e3 <= abs(float(text)) < 1e6:
        text = f"{float(text):.0f}"
    return text.removesuffix(".")


def cells(columns, rows):
    """Return a table as a list of rows of text, header first and missing values as `-`."""
    for row in rows:
        if len(row) > len(columns) + 1:
            raise ValueError(f"A row has at most {len(columns)} values. Received: {tuple(row)}")
    padded = ((*row, *[None] * (len(columns) + 1 - len(row))) for row in rows)
    return [["", *columns], *([cell(value) for value in row] for row in padded)]


def text_table(columns, rows):
    """Return a table as aligned plain text, names to the left and values to the right."""
    table = cells(columns, rows)
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in table
    )
