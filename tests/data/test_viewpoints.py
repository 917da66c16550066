"""Solids as cameras see them, by marching along rays; and the data set that is made of them.

Rejected: pictures upside down or mirrored, a camera that circles the other way, a part that hides
what is before it, a light of another lamp or of one that goes with the solid, instances in both
splits, views of other labels.
"""

import numpy as np
import pytest

from keras_capsule_poe.data import ImageData, ImageSet, load_images, split_views, viewpoints
from keras_capsule_poe.data.viewpoints import EDGE, axes_of, box, faces_seen, roof, shaded
from keras_capsule_poe.errors import DataError


def first_inside(parts, origin, forward):
    """The part and the depth where a ray is first inside of one, by small steps; or (-1, inf)."""
    depths = np.arange(-2, 2, 2e-3)
    points = origin + depths[:, None] * forward
    found = (-1, np.inf)
    for k, (planes, _) in enumerate(parts):
        inside = np.all(points @ planes[:, :3].T <= planes[:, 3], axis=1)
        if inside.any() and depths[inside.argmax()] < found[1]:
            found = (k, depths[inside.argmax()])
    return found


def test_each_ray_meets_the_face_that_lies_first_on_it():
    for azimuth, elevation in [(0, 0), (90, 45), (200, 30), (340, 70)]:
        parts = [
            box((-0.6, 0.2), (-0.5, 0.4), (-0.5, 0.1)),
            roof((-0.3, 0.8), (-0.4, 0.7), (0.0, 0.6)),
            box((0.5, 0.6), (-0.9, 0.9), (-0.4, 0.5)),
        ]
        size = 24
        seen = faces_seen(parts, azimuth, elevation, size)
        around, above = np.deg2rad([azimuth, elevation])
        camera = np.array(
            [np.cos(above) * np.cos(around), np.cos(above) * np.sin(around), np.sin(above)]
        )
        # Looking at the origin with z up: what lies to the right is counter-clockwise from there.
        right = np.array([-np.sin(around), np.cos(around), 0])
        up = np.cross(camera, right)
        np.testing.assert_allclose(axes_of(azimuth, elevation), [right, up, -camera], atol=1e-12)
        faces = [(k, plane) for k, (planes, _) in enumerate(parts) for plane in planes]
        compared = 0
        for row, column in np.ndindex(size, size):
            y = -EDGE * ((2 * row + 1) / size - 1)
            x = EDGE * ((2 * column + 1) / size - 1)
            part, depth = first_inside(parts, x * right + y * up, -camera)
            assert (seen[row, column] >= 0) == (part >= 0)
            if part >= 0:
                whose, plane = faces[seen[row, column]]
                point = x * right + y * up - depth * camera
                if whose == part:  # else two parts are entered within a step
                    assert abs(plane[:3] @ point - plane[3]) < 5e-3
                    compared += 1
        assert compared > 50 and compared > 0.95 * np.sum(seen >= 0)


def test_faces_are_as_bright_as_they_look_at_the_light():
    cube = [box((-0.5, 0.5), (-0.5, 0.5), (-0.5, 0.5))]
    lights = np.array([[1.0, 0, 0], [0, 0.6, 0.8], [-1.0, 0, 0]])
    # From (1, 0, 0) the camera sees the face of x = 1/2 alone.
    found = shaded(cube, 0, 0, 8, lights, albedo=0.8, background=0.1, ambient=0.25)
    expected = np.round(255 * 0.8 * np.array([1, 0.25, 0.25]))
    assert found[:, 4, 4].tolist() == expected.tolist()
    assert np.all(found[:, 0, 0] == np.round(255 * 0.1))


@pytest.fixture(scope="module")
def data():
    with pytest.MonkeyPatch.context() as patch:
        # All 24,300 take seconds. A grid as theirs, of fewer sides and lamps.
        patch.setattr(viewpoints, "AZIMUTHS", np.arange(0, 360, 60))
        patch.setattr(viewpoints, "ELEVATIONS", np.array([30, 70]))
        patch.setattr(viewpoints, "LIGHTS", viewpoints.LIGHTS[:2])
        yield load_images("viewpoints"), load_images("viewpoints", limit=7, image_size=32)


@pytest.mark.long
def test_every_view_of_every_solid_is_there_once(data):
    whole, _ = data
    assert whole.train.images.shape == whole.test.images.shape == (5 * 5 * 6 * 2 * 2, 48, 48, 2)
    for part, instances in ((whole.train, range(5, 10)), (whole.test, range(5))):
        rows = np.stack([part.labels, *(part.extras[name] for name in viewpoints.FIELDS)], axis=1)
        assert len(np.unique(rows, axis=0)) == len(rows)
        assert set(part.extras["instance"]) == set(instances)
    assert whole.train.class_names == ("table", "chair", "house", "airplane", "stairs")
    # In no order that the labels have.
    assert len(set(whole.train.labels[:20])) == 5


def test_each_pair_is_what_its_fields_say(data):
    whole, some = data
    for part in (whole.train, whole.test):
        for k in range(0, len(part), 37):
            fields = {name: int(values[k]) for name, values in part.extras.items()}
            parts, albedo, background = viewpoints.solid(int(part.labels[k]), fields["instance"])
            # The solid has turned by its azimuth, and begun with a side to the cameras.
            turned = 90 + 60 * fields["label_azimuth"]
            lamp, above = viewpoints.LIGHTS[fields["label_lighting"]]
            around, above = np.deg2rad([turned + lamp, above])
            light = [np.cos(above) * np.cos(around), np.cos(above) * np.sin(around), np.sin(above)]
            for camera, side in enumerate((-3, 3)):
                elevation = (30, 70)[fields["label_elevation"]]
                expected = shaded(
                    parts, turned + side, elevation, 48, np.array([light]), albedo, background
                )
                np.testing.assert_array_equal(part.images[k, :, :, camera], expected[0])
            assert np.any(part.images[k, :, :, 0] != part.images[k, :, :, 1])
    assert some.train.images.shape == (7, 32, 32, 2) and len(some.test) == len(whole.test)
    np.testing.assert_array_equal(some.train.labels, whole.train.labels[:7])


def test_what_it_has_not_is_refused():
    with pytest.raises(DataError, match="`column` has no meaning for the data set 'viewpoints'"):
        load_images("viewpoints", column="x")


@pytest.mark.parametrize(
    "by, name, familiar",
    [
        ("azimuth", "label_azimuth", {15, 16, 17, 0, 1, 2}),
        ("elevation", "label_elevation", {0, 1, 2}),
    ],
)
def test_some_views_are_trained_on_and_all_are_tested(by, name, familiar):
    random = np.random.default_rng(0)
    extras = {"label_azimuth": random.integers(18, size=90), "label_elevation": np.arange(90) % 9}
    images = random.integers(256, size=(90, 4, 4, 2)).astype("uint8")
    whole = ImageSet(images, np.arange(90), name="views", extras=extras)
    split = split_views(ImageData(whole, whole, held_out=whole), by)
    assert set(split.train.extras[name]) == set(split.held_out.extras[name]) == familiar
    assert len(split.train) == np.isin(extras[name], list(familiar)).sum()
    assert len(split.test) == 90
    views = zip(split.test.extras["novel"], split.test.extras[name], strict=True)
    assert all(bool(novel) == (view not in familiar) for novel, view in views)


def test_views_that_are_not_known_are_refused():
    plain = ImageSet(np.zeros((3, 4, 4, 1), "uint8"), name="plain")
    with pytest.raises(DataError, match="images must have the extra 'label_azimuth'.*of 'plain'"):
        split_views(ImageData(plain, plain), "azimuth")
    with pytest.raises(DataError, match="views are split by azimuth or elevation.*'light'"):
        split_views(ImageData(plain, plain), "light")
    novel = ImageSet(plain.images, name="n", extras={"label_elevation": np.array([3, 4, 8])})
    with pytest.raises(DataError, match="no training image is of a familiar elevation"):
        split_views(ImageData(novel, novel), "elevation")
