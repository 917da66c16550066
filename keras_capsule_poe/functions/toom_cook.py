"""Correlations by few multiplications: evaluate, multiply, interpolate (Toom-Cook, Winograd)."""

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

# Small numbers first: powers of large ones, and their inverses, cost digits. The last two are
# those that cost fewest of ten.
POINTS = tuple(Fraction(p) for p in ("0", "1", "-1", "2", "-2", "1/2", "-1/2", "3/4", "-3/4"))
# With one more point, at infinity. Float32 keeps four to five digits of eight products, three to
# four of ten.
MOST_PRODUCTS = len(POINTS) + 1


class Algorithm(NamedTuple):
    """Matrices of y = Aᵀ ((G k) * (B d)), exact in float64.

    `outputs` (n, m) is A, `taps` (n, r) is G, `inputs` (n, span) is B: m outputs of r taps k and
    of the span d that they see take n products.
    """

    outputs: np.ndarray
    taps: np.ndarray
    inputs: np.ndarray


@functools.lru_cache
def toom_cook(outputs, taps):
    """The `Algorithm` of y_o = Σ_s k_s d_{o+s}, with outputs + taps - 1 products.

    A polynomial of degree n - 1 is known by its values at n points, so the product of two with m
    and r coefficients takes n = m + r - 1 multiplications; the transpose of that is a correlation.

    Args:
        outputs: int, m.
        taps: int, r.

    Raises:
        ValueError: If it would take more than `MOST_PRODUCTS`.

    Examples:

    >>> A, G, B = toom_cook(2, 3)
    >>> k, d = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0, 7.0])
    >>> (A.T @ ((G @ k) * (B @ d))).tolist(), len(G)
    ([32.0, 38.0], 4)

    References:

    - S. Winograd, Arithmetic Complexity of Computations (1980), Chapter III
    - [Lavin and Gray, 2015](https://arxiv.org/abs/1509.09308), in two dimensions
    """
    n = outputs + taps - 1
    if min(outputs, taps) < 1 or n > MOST_PRODUCTS:
        raise ValueError(
            f"`outputs` and `taps` must be at least 1, and their sum at most {MOST_PRODUCTS + 1}. "
            f"Received: outputs={outputs}, taps={taps}"
        )
    points = POINTS[: n - 1]
    # Rows of the interpolation, by point: Lagrange's polynomials, and at infinity what is zero at
    # all others.
    rows = [_lagrange(points, k) for k in range(n - 1)] + [_with_roots(points)]
    values = [_powers(points, length) for length in (outputs, taps)]
    # The fractions stay with the taps, of which there are fewest.
    scales = [Fraction(2) ** round(math.log2(max(map(abs, row)))) for row in rows]
    return Algorithm(
        np.array(values[0], float),
        np.array([[s * v for v in row] for s, row in zip(scales, values[1], strict=True)], float),
        np.array([[c / s for c in row] for s, row in zip(scales, rows, strict=True)], float),
    )


def strided(outputs, taps, stride=1):
    """The `Algorithm` of y_o = Σ_s k_s d_{stride·o+s}: one `toom_cook` of each residue class.

    Raises:
        ValueError: As `toom_cook`.

    Examples:

    >>> A, G, B = strided(3, 9, stride=2)
    >>> A.shape, G.shape, B.shape  # 13 products in the place of 27
    ((13, 3), (13, 9), (13, 13))
    """
    span, parts = stride * (outputs - 1) + taps, []
    for first in range(min(stride, taps)):
        part = toom_cook(outputs, len(range(first, taps, stride)))
        taps_of, inputs_of = np.zeros((len(part.taps), taps)), np.zeros((len(part.taps), span))
        taps_of[:, first::stride] = part.taps
        inputs_of[:, range(first, span, stride)[: part.inputs.shape[1]]] = part.inputs
        parts.append(Algorithm(part.outputs, taps_of, inputs_of))
    return Algorithm(*(np.concatenate(matrices) for matrices in zip(*parts, strict=True)))


def _with_roots(roots):
    """Coefficients of Π (x - root), the lowest first."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [a - root * b for a, b in zip(shifted, [*found, Fraction(0)], strict=True)]
    return found


def _lagrange(points, k):
    """Coefficients of the polynomial that is one at point k and zero at the others, padded."""
    others = [point for point in points if point != points[k]]
    scale = math.prod((points[k] - point for point in others), start=Fraction(1))
    return [c / scale for c in _with_roots(others)] + [Fraction(0)]


def _powers(points, length):
    """Values at the points, and at infinity, of monomials of degrees below `length`."""
    finite = [[point**degree for degree in range(length)] for point in points]
    return [*finite, [Fraction(degree == length - 1) for degree in range(length)]]
