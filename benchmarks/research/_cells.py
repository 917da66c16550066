"""Figures of several seeds as a cell of a table."""

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
