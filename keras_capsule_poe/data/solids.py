"""Solids of flat faces, seen from afar: what a camera at an azimuth and an elevation sees.

A solid is a union of convex parts, each where n . p <= b for all its planes; z is up. Along a ray
in the direction f a part is entered at the last of the planes with n . f < 0, and left at the
first of those with n . f > 0.
"""

import itertools
from collections import namedtuple

import numpy as np

# From the middle of the picture to its edge, in units of a solid, which lies within 1 of the axis.
EDGE = 1.3
SAMPLES = 2
PARALLEL = 1e-9


Part = namedtuple("Part", ["planes", "corners"])
Part.__doc__ = "A convex part: planes n . p <= b, (F, 4), n of length one; corners (V, 3)."


def box(x, y, z):
    """The convex `Part` between two coordinates on each axis.

    Examples:

    >>> box((-1, 1), (0, 2), (0, 1)).planes[0].tolist()
    [1.0, 0.0, 0.0, 1.0]
    """
    planes = []
    for axis, (low, high) in zip(np.eye(3), (x, y, z)):
        planes += [[*axis, high], [*-axis, -low]]
    return Part(np.array(planes), np.array(list(itertools.product(x, y, z)), "float64"))


def roof(x, y, z):
    """A `Part` that stands on a rectangle, with a ridge along x.

    Examples:

    >>> roof((-1, 1), (-1, 1), (0, 1)).corners[-1].tolist()
    [1.0, 0.0, 1.0]
    """
    middle, half, height = (y[0] + y[1]) / 2, (y[1] - y[0]) / 2, z[1] - z[0]
    planes = [[1, 0, 0, x[1]], [-1, 0, 0, -x[0]], [0, 0, -1, -z[0]]]
    for side in (1, -1):
        n = np.array([0, side * height, half]) / np.hypot(height, half)
        planes.append([*n, n @ (0, middle, z[1])])
    corners = [*itertools.product(x, y, z[:1]), *((end, middle, z[1]) for end in x)]
    return Part(np.array(planes, "float64"), np.array(corners, "float64"))


def axes_of(azimuth, elevation):
    """Right, up and forward of a camera, (3, 3), that looks at the origin.

    Args:
        azimuth, elevation: float, where it stands, in degrees.

    Examples:

    >>> np.round(axes_of(azimuth=0, elevation=90)).astype(int).tolist()  # from above
    [[0, 1, 0], [-1, 0, 0], [0, 0, -1]]
    """
    around, above = np.deg2rad([azimuth, elevation])
    right = [-np.sin(around), np.cos(around), 0]
    level = np.array([np.cos(around), np.sin(around), 0])
    forward = -np.cos(above) * level - [0, 0, np.sin(above)]
    return np.array([right, np.cross(right, forward), forward])


def faces_seen(parts, azimuth, elevation, size):
    """Which face each ray of a picture meets first.

    Args:
        parts: List of `Part`.
        azimuth, elevation: float, of the camera, in degrees.
        size: int, rays along each edge of the picture.

    Returns:
        int array (size, size): the number of the face, counted over all parts; -1 for none.

    Examples:

    >>> cube = [box((-0.5, 0.5), (-0.5, 0.5), (-0.5, 0.5))]
    >>> faces_seen(cube, azimuth=0, elevation=0, size=3).tolist()
    [[-1, -1, -1], [-1, 0, -1], [-1, -1, -1]]
    """
    right, up, forward = axes_of(azimuth, elevation)
    along = (EDGE * ((2 * np.arange(size) + 1) / size - 1)).astype("float32")
    nearest = np.full((size, size), np.inf, "float32")
    seen, first = np.full((size, size), -1), 0
    for planes, corners in parts:
        # Only the rays that may meet the part: rows go down, y goes up.
        columns, rows = (
            slice(*np.searchsorted(along, (ends.min(), ends.max())))
            for ends in (corners @ right, -(corners @ up))
        )
        x, y = along[columns], -along[rows]
        slope = planes[:, :3] @ forward
        slope = np.where(np.abs(slope) < PARALLEL, PARALLEL, slope)
        # A plane is met at t = (b - n . (x right + y up)) / (n . f), a plane over the picture.
        terms = np.stack([planes[:, 3], -(planes[:, :3] @ right), -(planes[:, :3] @ up)]) / slope
        entered = np.full((len(y), len(x)), -np.inf, "float32")
        left, face = np.full_like(entered, np.inf), np.zeros(entered.shape, int)
        for k, (constant, by_x, by_y) in enumerate(terms.T.astype("float32")):
            met = (constant + by_y * y)[:, None] + by_x * x
            if slope[k] > 0:
                np.minimum(left, met, out=left)
            else:
                face[met > entered] = k
                np.maximum(entered, met, out=entered)
        is_first = (entered < left) & (entered < nearest[rows, columns])
        nearest[rows, columns][is_first] = entered[is_first]
        seen[rows, columns][is_first] = first + face[is_first]
        first += len(planes)
    return seen


def shaded(parts, azimuth, elevation, size, lights, albedo, background, ambient=0.25):
    """Pictures of a solid from one place, in each of several lights.

    Args:
        parts, azimuth, elevation: See `faces_seen`.
        size: int, height and width in pixels.
        lights: Array (L, 3), directions to the lights, of length one.
        albedo: float in [0, 1], of all faces.
        background: float in [0, 1], what is seen beside the solid.
        ambient: float, the share of light that comes from everywhere.

    Returns:
        uint8 array (L, size, size).

    Examples:

    >>> cube = [box((-0.5, 0.5), (-0.5, 0.5), (-0.5, 0.5))]
    >>> above = np.array([[0.0, 0.0, 1.0]])
    >>> int(shaded(cube, 0, 90, 9, above, albedo=1.0, background=0.0)[0, 4, 4])
    255
    """
    seen = faces_seen(parts, azimuth, elevation, SAMPLES * size)
    normals = np.concatenate([part.planes[:, :3] for part in parts])
    direct = np.maximum(lights @ normals.T, 0)
    brightness = albedo * (ambient + (1 - ambient) * direct)
    # The last one is met by what meets no face.
    brightness = np.pad(brightness, ((0, 0), (0, 1)), constant_values=background)
    fine = brightness[:, seen].reshape(-1, size, SAMPLES, size, SAMPLES)
    return np.round(255 * fine.mean(axis=(2, 4))).astype("uint8")
