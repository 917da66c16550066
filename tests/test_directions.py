"""Properties of images, and directions of codes that change them.

Rejected: a slant of the wrong sign, ink that depends on which of ink and paper is bright, an R2 of
the codes that were fitted, an order of dimensions by the spread of codes, and rows of figures that
are not the directions.
"""

import numpy as np
import pytest
from keras import ops

from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.directions import (
    DRAWS,
    directions,
    effects,
    fitted,
    properties,
)
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.models.base.protocols import Images
from keras_capsule_poe.plotting import moved_capsule


def bar(top=4, left=6, high=10, wide=3, lean=0.0, value=1.0, size=20):
    image = np.zeros((1, size, size, 1))
    for row in range(high):
        shift = round(lean * (high - row))
        image[0, top + row, left + shift : left + shift + wide] = value
    return image


def measure(name, **options):
    return float(properties(bar(**options))[name][0])


def test_properties_of_a_bar():
    assert measure("height") == pytest.approx(0.5)
    assert measure("width") == pytest.approx(0.15)
    assert measure("area") == pytest.approx(30 / 400)
    assert measure("brightness", value=0.5) == pytest.approx(0.5)
    assert measure("shift right", left=12) - measure("shift right") == pytest.approx(0.3)
    assert measure("shift up") - measure("shift up", top=8) == pytest.approx(0.2)
    assert measure("slant", lean=0.5) > 0.3 > abs(measure("slant")) < 1e-9
    assert measure("slant", lean=-0.4) < -0.3


def test_shade_inside_an_outline_moves_nothing():
    even, shaded = bar(wide=6), bar(wide=6)
    shaded[..., 6:9, 0] *= 0.5
    for name in ("shift right", "shift up", "slant", "area"):
        assert properties(shaded)[name][0] == pytest.approx(properties(even)[name][0]), name
    assert properties(shaded)["brightness"] < properties(even)["brightness"]


def test_a_shift_that_cannot_be_seen_is_no_direction():
    codes = np.random.default_rng(0).normal(size=(100, 3))
    for deviation, names in ((0.005, []), (0.05, ["shift up"])):
        measured = {"shift up": 0.5 + deviation * codes[:, 0]}
        assert [each.name for each in fitted(codes, measured)] == names


def test_dark_ink_on_light_paper_measures_as_light_ink_on_dark():
    light, dark = properties(bar(lean=0.5)), properties(1 - bar(lean=0.5))
    for name, values in light.items():
        np.testing.assert_allclose(dark[name], values, atol=1e-12, err_msg=name)


def test_colours():
    image = bar().repeat(3, axis=-1)
    image[..., 1:] = 0
    assert properties(image)["red"] > 0 > properties(image)["blue"]


def test_a_direction_is_that_of_the_property_and_r2_that_of_new_codes():
    random = np.random.default_rng(0)
    codes = random.normal(size=(300, 5))
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    wanted = np.array([0.6, 0, 0.8, 0, 0])
    noise = random.normal(size=300)
    slope, nothing = fitted(codes, {"noise": noise, "slope": codes @ wanted, "flat": np.ones(300)})
    assert (slope.name, nothing.name) == ("slope", "noise")
    assert slope.r2 > 0.95 and nothing.r2 < 0.05
    np.testing.assert_allclose(slope.vector, wanted, atol=0.05)
    assert slope.deviation == pytest.approx((codes @ wanted).std(), rel=0.05)


class Painter:
    """A model whose capsule 1 moves a bar: dimension 0 by much, 1 by little, 2 not at all."""

    CODES, capsules, dim, image_shape = "alone", 2, 3, (20, 20, 1)
    modes: dict = {"single": type("Mode", (), {"domains": ("prior",)})()}

    def draw_capsule(self, capsule, n, seed, domain):
        codes = np.zeros((n, 2, 3), "float32")
        codes[:, capsule] = np.random.default_rng(seed).normal(size=(n, 3)) * [0.2, 0.2, 5.0]
        return {"capsules": codes}

    def decode(self, codes):
        own = codes[:, 1]
        grey = 0.4 + 0.5 * own[:, :1] + 0.05 * own[:, 1:2]
        return Images(np.clip(grey[:, :, None, None] * bar()[0], 0, 1).astype("float32"))


def test_directions_of_a_capsule():
    found = directions(Painter(), 1)
    assert found[0].name == "brightness" and found[0].r2 > 0.9
    assert abs(found[0].vector[0]) > 0.98
    with pytest.raises(BadUse, match=r"`capsule` must be .* Received: capsule=2"):
        directions(Painter(), 2)


def test_rows_of_figures_are_named_directions_and_then_dimensions_by_effect():
    images, _, names = moved_capsule(Painter(), 1, rows=20, steps=3, span=0.2)
    assert names[0].startswith("brightness, R² 0.9") and len(names) == len(images)
    assert names[-3:] == ["dimension 0", "dimension 1", "dimension 2"]
    light = images[0].mean(axis=(1, 2, 3))
    assert light[0] < light[1] < light[2]
    # Rejected: a property that follows nothing of the code, such as the height of a bar.
    assert not any(name.startswith("height") for name in names)
    assert moved_capsule(Painter(), 1, rows=2)[2] == names[:2]


class Namer:
    """A classifier: the first pixels of an image are its code, the last one its class."""

    CODES, capsules, dim, image_shape = "alone", 2, 3, (2, 2, 1)

    def encode(self, images):
        own = ops.reshape(images, (-1, 4))
        codes = ops.repeat(0.6 * own[:, None, :3], 2, axis=1)
        return {"capsules": codes, "probabilities": ops.concatenate([1 - own, own], 1)[:, 3::4]}

    def render(self, capsules):
        grey = 0.2 + capsules[:, 1, :1] + 0.05 * capsules[:, 1, 1:2]
        return {"images": grey[:, :, None, None] * bar()[0].astype("float32")}


def test_a_classifier_has_directions_of_the_images_that_a_class_wins():
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (200, 2, 2, 1)).astype("uint8")
    # Images of the other class have one code.
    pixels[:, 1, 1, 0] = 255 * (np.arange(200) % 2)
    pixels[::2, 0] = 0
    with pytest.raises(BadUse, match="`images` must be given for a model that does not draw"):
        directions(Namer(), 1)
    given = ImageSet(pixels)
    found = directions(Namer(), 1, given)
    assert found[0].name == "brightness" and found[0].r2 > 0.9
    assert abs(found[0].vector[0]) > 0.98
    for same in (ImageData(given.head(0), given), pixels, (pixels / 255).astype("float32")):
        assert directions(Namer(), 1, same)[0].r2 == pytest.approx(found[0].r2, abs=1e-6)
    rows = moved_capsule(Namer(), 1, pixels[1:2], 1, steps=3, images=pixels)[2]
    assert rows == [f"brightness, R² {found[0].r2:.2f}"]


def test_effects_are_of_pictures_not_of_codes():
    deviations = np.asarray(Painter().draw_capsule(1, DRAWS, 0, None)["capsules"])[:, 1].std(axis=0)
    found = effects(Painter(), np.zeros((2, 3)), 1, deviations)
    # The widest dimension of the codes changes nothing.
    assert deviations.argmax() == 2 and np.argsort(-found).tolist() == [0, 1, 2]
    assert found[2] == 0
    assert found[0] == pytest.approx(0.5 * deviations[0] * 30 / 400, rel=0.01)
