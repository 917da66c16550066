"""The picture of couplings: means and spreads of the right capsule, iteration by iteration."""

import keras
import numpy as np
import pytest

from keras_capsule_poe.plotting import coupling_chart, couplings

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
