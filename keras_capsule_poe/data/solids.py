"""Images of polyhedra, seen by a distant camera.

A solid is a union of convex parts with n . p <= b for all planes of a part; z points up.
A ray with direction f enters a part at the last of its planes with n . f < 0.
It leaves the part at the first plane with n . f > 0.
"""

import itertools
from collections import namedtuple

import numpy as np

# Half the width of the picture; a solid lies within 1 of the axis.
EDGE = 1.3
SAMPLES = 2
PARALLEL = 1e-9


Part = namedtuple("Part", ["planes", "corners"])
Part.__doc__ = "A convex part: planes n . p <= b, (F, 4), n of length one; corners (V, 3)."


def box(x, y, z):
    """Return the box between two coordinates on each axis, as a convex `Part`."""
    planes = []
    for axis, (low, high) in zip(np.eye(3), (x, y, z)):
        planes += [[*axis, high], [*-axis, -low]]
    return Part(np.array(planes), np.array(list(itertools.product(x, y, z)), "float64"))


def roof(x, y, z):
    """Return a gable roof on a rectangle, with its ridge along x, as a convex `Part`."""
    middle, half, height = (y[0] + y[1]) / 2, (y[1] - y[0]) / 2, z[1] - z[0]
    planes = [[1, 0, 0, x[1]], [-1, 0, 0, -x[0]], [0, 0, -1, -z[0]]]
    for side in (1, -1):
        n = np.array([0, side * height, half]) / np.hypot(height, half)
        planes.append([*n, n @ (0, middle, z[1])])
    corners = [*itertools.product(x, y, z[:1]), *((end, middle, z[1]) for end in x)]
    return Part(np.array(planes, "float64"), np.array(corners, "float64"))


def axes_of(azimuth, elevation):
    """Return the right, up and forward axes (3, 3) of a camera; angles are in degrees."""
    around, above = np.deg2rad([azimuth, elevation])
    right = [-np.sin(around), np.cos(around), 0]
    level = np.array([np.cos(around), np.sin(around), 0])
    forward = -np.cos(above) * level - [0, 0, np.sin(above)]
    return np.array([right, np.cross(right, forward), forward])


def faces_seen(parts, azimuth, elevation, size):
    """Return the first face on each ray (size, size), numbered over all parts; -1 for none."""
    right, up, forward = axes_of(azimuth, elevation)
    along = (EDGE * ((2 * np.arange(size) + 1) / size - 1)).astype("float32")
    nearest = np.full((size, size), np.inf, "float32")
    seen, first = np.full((size, size), -1), 0
    for planes, corners in parts:
        # Only rays that can hit the part. Rows count downwards, y upwards.
        columns, rows = (
            slice(*np.searchsorted(along, (ends.min(), ends.max())))
            for ends in (corners @ right, -(corners @ up))
        )
        x, y = along[columns], -along[rows]
        slope = planes[:, :3] @ forward
        slope = np.where(np.abs(slope) < PARALLEL, PARALLEL, slope)
        # A ray hits a plane at t = (b - n . (x right + y up)) / (n . f), linear in x and y.
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
    """Render a solid under L lights as uint8 images (L, size, size); angles are in degrees."""
    seen = faces_seen(parts, azimuth, elevation, SAMPLES * size)
    normals = np.concatenate([part.planes[:, :3] for part in parts])
    direct = np.maximum(lights @ normals.T, 0)
    brightness = albedo * (ambient + (1 - ambient) * direct)
    # Face -1 selects this last entry, the background.
    brightness = np.pad(brightness, ((0, 0), (0, 1)), constant_values=background)
    fine = brightness[:, seen].reshape(-1, size, SAMPLES, size, SAMPLES)
    return np.round(255 * fine.mean(axis=(2, 4))).astype("uint8")
