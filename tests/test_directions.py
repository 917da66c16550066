"""Properties of images, and directions of codes that change them.

Rejected: a slant of the wrong sign, ink that depends on which of ink and paper is bright, an R2 of
the codes that were fitted, and an order of dimensions by the spread of codes.
"""

import numpy as np
import pytest

from keras_capsule_poe.directions import (
    DRAWS,
    directions,
    effects,
    fitted,
    properties,
)
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.models.base.protocols import Images


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

    CODES, capsules, dim = "alone", 2, 3
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


def test_effects_are_of_pictures_not_of_codes():
    deviations = np.asarray(Painter().draw_capsule(1, DRAWS, 0, None)["capsules"])[:, 1].std(axis=0)
    found = effects(Painter(), np.zeros((2, 3)), 1, deviations)
    # The widest dimension of the codes changes nothing.
    assert deviations.argmax() == 2 and np.argsort(-found).tolist() == [0, 1, 2]
    assert found[2] == 0
    assert found[0] == pytest.approx(0.5 * deviations[0] * 30 / 400, rel=0.01)
