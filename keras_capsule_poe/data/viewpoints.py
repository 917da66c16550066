"""Images of polyhedra, seen by a distant camera.

A solid is a union of convex parts with n . p <= b for all planes of a part; z points up.
A ray with direction f enters a part at the last of its planes with n . f < 0.
It leaves the part at the first plane with n . f > 0.
"""

import itertools
from collections import namedtuple

import numpy as np

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.pixels import fit_images
from keras_capsule_poe.data.streams import epoch_order

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


SIZE = 48
TESTED = 5
ELEVATIONS = np.arange(30, 71, 5)
AZIMUTHS = np.arange(0, 360, 20)
# Degrees to the right of the cameras, and elevation. Lamps stand still relative to the cameras,
# as in smallNORB, where solids turn on a turntable.
LIGHTS = ((20, 50), (110, 35), (200, 50), (290, 35), (65, 75), (245, 65))
# Degrees between the cameras.
STEREO = 6
# Position of the cameras at azimuth 0. This side view shows the kind of solid at the familiar
# azimuths around 0; from behind, stairs look like a box.
BESIDE = 90
FIELDS = ("instance", "label_elevation", "label_azimuth", "label_lighting")


def _table(draw):
    length, width, height = draw(0.6, 1.0), draw(0.45, 0.7), draw(0.5, 0.9)
    top, leg = draw(0.08, 0.18), draw(0.08, 0.16)
    legs = [
        box((x, x + leg), (y, y + leg), (0, height - top))
        for x in (-length, length - leg)
        for y in (-width, width - leg)
    ]
    return [box((-length, length), (-width, width), (height - top, height)), *legs]


def _chair(draw):
    half, seat, back = draw(0.38, 0.55), draw(0.45, 0.7), draw(1.1, 1.5)
    slab, leg = draw(0.08, 0.16), draw(0.08, 0.14)
    legs = [
        box((x, x + leg), (y, y + leg), (0, seat))
        for x in (-half, half - leg)
        for y in (-half, half - leg)
    ]
    backrest = box((-half, slab - half), (-half, half), (seat, back))
    return [box((-half, half), (-half, half), (seat, seat + slab)), backrest, *legs]


def _house(draw):
    length, width = draw(0.55, 0.95), draw(0.4, 0.65)
    wall, ridge, eaves = draw(0.4, 0.8), draw(0.3, 0.6), draw(0.02, 0.12)
    chimney = draw(-0.6, 0.6) * length
    return [
        box((-length, length), (-width, width), (0, wall)),
        roof((-length, length), (-width - eaves, width + eaves), (wall, wall + ridge)),
        box((chimney, chimney + 0.15), (0.1, 0.25), (wall, wall + ridge + 0.1)),
    ]


def _airplane(draw):
    body, thick, span = draw(0.8, 1.0), draw(0.1, 0.18), draw(0.7, 1.0)
    wing, place, tail = draw(0.15, 0.3), draw(-0.1, 0.2), draw(0.3, 0.45)
    low = 0.3
    return [
        box((-body, body), (-thick, thick), (low, low + 2 * thick)),
        box((place, place + wing), (-span, span), (low + 0.1, low + 0.17)),
        box((-body, 0.15 - body), (-tail, tail), (low + 0.15, low + 0.22)),
        box((-body, 0.2 - body), (-0.04, 0.04), (low, low + 2 * thick + tail)),
    ]


def _stairs(draw):
    length, width, height = draw(0.7, 1.0), draw(0.35, 0.6), draw(0.7, 1.1)
    steps = int(draw(3, 6))
    ends = np.linspace(-length, length, steps + 1)
    return [
        box((ends[k], length), (-width, width), (height * k / steps, height * (k + 1) / steps))
        for k in range(steps)
    ]


SOLIDS = {
    "table": _table,
    "chair": _chair,
    "house": _house,
    "airplane": _airplane,
    "stairs": _stairs,
}


def solid(category, instance):
    """Return the parts of a solid around the origin, its albedo and the background brightness."""
    random = np.random.default_rng([category, instance])
    parts = list(SOLIDS.values())[category](lambda low, high: float(random.uniform(low, high)))
    corners = np.concatenate([part.corners for part in parts])
    middle = (corners.min(axis=0) + corners.max(axis=0)) / 2
    moved = []
    for planes, corners in parts:
        planes = np.concatenate([planes[:, :3], planes[:, 3:] - planes[:, :3] @ middle[:, None]], 1)
        moved.append(type(parts[0])(planes, corners - middle))
    return moved, random.uniform(0.75, 1.0), random.uniform(0.25, 0.45)


def load_viewpoints(options):
    """Load pairs of five instances per solid for training, and of five others for testing."""
    sizes = (len(SOLIDS), TESTED, len(ELEVATIONS), len(AZIMUTHS), len(LIGHTS))
    # Fixed seed, so that test metrics of different training seeds are comparable.
    order = epoch_order(int(np.prod(sizes)), seed=0, epoch=0)
    train = _part(order[: options.limit], sizes, first=TESTED, size=options.image_size)
    return ImageData(train, _part(order, sizes, first=0, size=options.image_size))


def _part(numbers, sizes, first, size):
    """Render the pairs `numbers`, with instances from `first` on."""
    labels, instance, *views = (x.astype(np.int64) for x in np.unravel_index(numbers, sizes))
    images = np.empty((len(numbers), SIZE, SIZE, 2), np.uint8)
    # Images from one place differ only in their light, so they are rendered together.
    places = np.stack([labels, instance, *views[:2]], axis=1)
    places, of_place = np.unique(places, axis=0, return_inverse=True)
    rows_of = [np.flatnonzero(of_place.ravel() == k) for k in range(len(places))]
    for (category, which, above, around), rows in zip(places, rows_of):
        parts, albedo, background = solid(category, first + which)
        middle = BESIDE + AZIMUTHS[around]
        lights = _directions(views[2][rows], middle)
        for camera, side in enumerate((-STEREO / 2, STEREO / 2)):
            at = middle + side, ELEVATIONS[above]
            images[rows, :, :, camera] = shaded(parts, *at, SIZE, lights, albedo, background)
    if size is not None:
        images = fit_images(images, size)
    extras = dict(zip(FIELDS, (first + instance, *views)))
    return ImageSet(images, labels, tuple(SOLIDS), "viewpoints", extras)


def _directions(lights, cameras):
    """Return unit vectors (L, 3) to the lamps, relative to cameras at an azimuth."""
    around, above = np.deg2rad(np.array(LIGHTS)[lights] + (cameras, 0)).T
    level = np.stack([np.cos(around), np.sin(around)]) * np.cos(above)
    return np.concatenate([level, np.sin(above)[None]]).T
