"""Figures of several seeds as cells of a table."""

import numpy as np


def cell(values, digits=3):
    """The mean of some values, and of two or more their standard deviation.

    >>> cell([0.25, 0.35]), cell([2]), cell([]), cell([1.0, None])
    ('0.3 ± 0.071', '2', '-', '-')
    """
    if not values or None in values:
        return "-"
    mean, deviation = np.mean(values), ""
    if len(values) > 1:
        spread = np.std(values, ddof=1)
        # Equal values differ by the rounding of their mean.
        deviation = f" ± {spread if spread > 1e-9 * abs(mean) else 0:.2g}"
    return f"{mean:.{digits}g}{deviation}"


def table(done, names, seeds, columns):
    """Markdown: a line a row, mean and standard deviation over the seeds that are there."""
    lines = ["| | seeds | " + " | ".join(column.replace("_", " ") for column in columns) + " |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    for name in names:
        found = [done[name][str(seed)] for seed in seeds if str(seed) in done.get(name, {})]
        if found:
            cells = (cell([row.get(column) for row in found]) for column in columns)
            lines.append(f"| {name} | {len(found)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
