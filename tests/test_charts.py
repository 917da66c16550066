"""Charts of coupling coefficients and of what each layer contributes.

Rejected: means over the classes, another capsule's spread, iterations upside down; rows for
columns, types in another order, a frame around another capsule, couplings of another iteration or
image.
"""

import keras
import matplotlib
import numpy as np
import pytest

from keras_capsule_poe.charts import FRAME, coupling_chart, couplings, mosaic

N, STEPS, I, J = 2, 3, 50, 4


@pytest.fixture
def coefficients():
    logits = (
        np.random.default_rng(0).normal(size=(N, STEPS, I, J)) * np.arange(STEPS)[:, None, None]
    )
    c = np.exp(logits)
    return c / c.sum(axis=-1, keepdims=True)


def test_the_capsule_is_the_longest_or_the_one_asked_for(coefficients):
    class Fixed:
        def classify(self, images):
            return {"probabilities": images[:, 0, :, 0]}

        def couplings(self, images):
            return keras.ops.convert_to_tensor(coefficients)

    images = np.array([[0.1, 0.9, 0.5, 0.2], [0.8, 0.1, 0.1, 0.1]]).reshape(N, 1, J, 1)
    found, capsules = couplings(Fixed(), images)
    np.testing.assert_array_equal(found, coefficients)
    assert capsules.tolist() == [1, 0]
    assert couplings(Fixed(), images, capsule=3)[1].tolist() == [3, 3]


def test_the_chart_shows_the_numbers(coefficients):
    """Rejects means over the classes, another capsule's spread, and iterations upside down."""
    images = np.zeros((N, 8, 8, 1), "uint8")
    capsules, names = np.array([2, 0]), ("T-shirt", "bag")
    figure = coupling_chart(images, coefficients, capsules, ["first", "second"], names)
    assert len(figure.axes) == 3 * N
    for r, capsule in enumerate(capsules):
        shown, means, spread = figure.axes[3 * r : 3 * r + 3]
        assert shown.get_title() == ("first", "second")[r]
        texts = [text.get_text() for text in means.texts]
        expected = coefficients[r].mean(axis=1).ravel()
        assert texts == [f"{mean:.3f}".removeprefix("0") for mean in expected]
        labels = [label.get_text() for label in means.get_yticklabels()]
        assert labels == ["start", "1", "2"] and means.yaxis_inverted()
        assert [label.get_text() for label in means.get_xticklabels()] == [*names, "2", "3"]
        (frame,) = (patch for patch in means.patches)
        assert frame.get_x() == capsule - 0.5
        for t, stairs in enumerate(spread.patches):
            counts, edges, _ = stairs.get_data()
            inside, _ = np.histogram(coefficients[r, t, :, capsule], edges)
            assert counts.tolist() == inside.tolist() and counts.sum() == I
        assert spread.get_title().endswith(" to " + (*names, "2", "3")[capsule])


def test_couplings_that_are_all_the_same_have_a_chart():
    figure = coupling_chart(np.zeros((1, 8, 8, 3)), np.full((1, 2, 5, 10), 0.1), np.array([0]))
    assert all(stairs.get_data().values.sum() == 5 for stairs in figure.axes[2].patches)


NAMES = ("T-shirt", "bag", "coat")
SHAPE = (5, 4, 6)


def test_a_mosaic_has_each_map_where_its_corner_is():
    for types, columns in ((1, 1), (2, 2), (6, 3), (7, 7), (16, 4)):
        maps = np.random.default_rng(0).uniform(size=(2, 3, types, 3))
        found, corners = mosaic(maps)
        assert found.shape == (3 * -(-types // columns) - 1, 4 * columns - 1, 3)
        for kind, (top, left) in enumerate(corners):
            np.testing.assert_array_equal(found[top : top + 2, left : left + 3], maps[:, :, kind])
        # All else is white.
        assert np.isclose(found.sum(), maps.sum() + 3 * (found[..., 0].size - 6 * types))


@pytest.fixture
def layers():
    random = np.random.default_rng(1)
    coupling = random.uniform(size=(2, 3, *SHAPE))
    coupling[:, :, 3:] = np.nan
    return {
        "primary_capsules": {
            "activation": random.uniform(size=(2, *SHAPE)),
            "followed": np.array([7, 71]),
            "coupling": coupling,
        },
        "classes": {"activation": random.uniform(size=(2, 1, 1, 3)), "followed": np.array([2, 0])},
    }


def test_the_chart_shows_the_layers(layers):
    c, capsules = np.full((2, 3, 120, 3), 1 / 3), layers["classes"]["followed"]
    figure = coupling_chart(np.zeros((2, 8, 8, 1)), c, capsules, None, NAMES, layers)
    assert "what gives most" in figure.get_supxlabel()
    assert len(figure.axes) == 2 * (3 + 3)
    maps = layers["primary_capsules"]
    for r, capsule in enumerate(capsules):
        activation, coupling, bars = figure.axes[6 * r + 3 : 6 * r + 6]
        assert activation.get_title() == "primary capsules, 6 types\nat 5x4: activations"
        assert coupling.get_title() == "couplings to the one\nframed in classes"
        for panel, values in (
            (activation, maps["activation"][r]),
            (coupling, maps["coupling"][r, -1]),
        ):
            low, high = np.nanmin(values), np.nanmax(values)
            assert panel.get_xlabel().startswith(f"white {low:.2f}, blue {high:.2f}")
            colours = matplotlib.colormaps["Blues"]((values - low) / (high - low))[..., :3]
            colours[np.isnan(values)] = matplotlib.colors.to_rgb("#d4d4d4")
            shown, corners = mosaic(colours)
            np.testing.assert_allclose(panel.images[0].get_array(), shown, atol=1e-6)
            row, column, kind = np.unravel_index(maps["followed"][r], SHAPE)
            (frame,) = panel.patches
            centre = frame.get_y() + frame.get_height() / 2, frame.get_x() + frame.get_width() / 2
            assert centre == tuple(corners[kind] + (row, column))
        by_iteration = maps["coupling"][r].reshape(3, -1)[:, maps["followed"][r]]
        if r == 0:  # The other one lies out of sight.
            assert coupling.get_xlabel().endswith(", ".join(f"{x:.3f}" for x in by_iteration))
        heights = [bar.get_height() for bar in bars.patches]
        np.testing.assert_allclose(heights, layers["classes"]["activation"][r].ravel())
        framed = [bar.get_facecolor() == matplotlib.colors.to_rgba(FRAME) for bar in bars.patches]
        assert framed == [j == capsule for j in range(3)]
        assert [label.get_text() for label in bars.get_xticklabels()] == list(NAMES)
