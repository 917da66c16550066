"""Correlations with few multiplications: evaluate, multiply, interpolate (Toom-Cook, Winograd)."""

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

# Small numbers first, because powers of large ones and their inverses cost digits.
POINTS = tuple(Fraction(p) for p in ("0", "1", "-1", "2", "-2", "1/2", "-1/2", "3/4", "-3/4"))
# One more point is at infinity. Float32 keeps 4-5 digits with 8 products, 3-4 digits with 10.
MOST_PRODUCTS = len(POINTS) + 1


class Algorithm(NamedTuple):
    """Matrices A (n, m), G (n, r) and B (n, span) of y = Aᵀ ((G k) * (B d)), exact in float64."""

    outputs: np.ndarray
    taps: np.ndarray
    inputs: np.ndarray


@functools.lru_cache
def toom_cook(outputs, taps):
    """Return the `Algorithm` of y_o = Σ_s k_s d_{o+s}, with outputs + taps - 1 products."""
    # A product of polynomials with m and r coefficients follows from its values at m + r - 1
    # points. Its transpose is a correlation (Winograd, 1980; Lavin & Gray, 2015).
    n = outputs + taps - 1
    if min(outputs, taps) < 1 or n > MOST_PRODUCTS:
        raise ValueError(
            f"`outputs` and `taps` must be at least 1, and their sum at most {MOST_PRODUCTS + 1}. "
            f"Received: outputs={outputs}, taps={taps}"
        )
    points = POINTS[: n - 1]
    # Rows of the interpolation: Lagrange polynomials, and for infinity the one with all roots.
    rows = [_lagrange(points, k) for k in range(n - 1)] + [_with_roots(points)]
    values = [_powers(points, length) for length in (outputs, taps)]
    # The taps take the scales, because there are fewest of them.
    scales = [Fraction(2) ** round(math.log2(max(map(abs, row)))) for row in rows]
    return Algorithm(
        np.array(values[0], float),
        np.array([[s * v for v in row] for s, row in zip(scales, values[1], strict=True)], float),
        np.array([[c / s for c in row] for s, row in zip(scales, rows, strict=True)], float),
    )


def strided(outputs, taps, stride=1):
    """Return the `Algorithm` of y_o = Σ_s k_s d_{stride·o+s}, one `toom_cook` per residue class."""
    span, parts = stride * (outputs - 1) + taps, []
    for first in range(min(stride, taps)):
        part = toom_cook(outputs, len(range(first, taps, stride)))
        taps_of, inputs_of = np.zeros((len(part.taps), taps)), np.zeros((len(part.taps), span))
        taps_of[:, first::stride] = part.taps
        inputs_of[:, range(first, span, stride)[: part.inputs.shape[1]]] = part.inputs
        parts.append(Algorithm(part.outputs, taps_of, inputs_of))
    return Algorithm(*(np.concatenate(matrices) for matrices in zip(*parts, strict=True)))


def _with_roots(roots):
    """Return the coefficients of Π (x - root), the lowest first."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [a - root * b for a, b in zip(shifted, [*found, Fraction(0)], strict=True)]
    return found


def _lagrange(points, k):
    """Return the coefficients of the k-th Lagrange polynomial of the points, padded."""
    others = [point for point in points if point != points[k]]
    scale = math.prod((points[k] - point for point in others), start=Fraction(1))
    return [c / scale for c in _with_roots(others)] + [Fraction(0)]


def _powers(points, length):
    """Return the monomials of degrees below `length`, at the points and at infinity."""
    finite = [[point**degree for degree in range(length)] for point in points]
    return [*finite, [Fraction(degree == length - 1) for degree in range(length)]]
