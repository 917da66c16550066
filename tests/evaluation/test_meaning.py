"""What capsules mean, on codes whose answer is known."""

import json

import numpy as np
import pytest

from keras_capsule_poe.evaluation.model_page import capsule_meaning, mean_traversals

PROBABILITIES = np.array(
    [
        [0.9, 0.1, 0.3],
        [0.8, 0.2, 0.1],
        [0.2, 0.7, 0.6],
        [0.5, 0.5, 0.4],  # a draw, which the first wins
        [0.1, 0.6, 0.2],
    ],
    "float32",
)


def test_top_images_share_and_classes():
    found = capsule_meaning(PROBABILITIES, np.array([2, 0, 1, 2, 3]), shown=2)
    assert [capsule["capsule"] for capsule in found] == [0, 1, 2]
    assert [capsule["top"] for capsule in found] == [[0, 1], [2, 4], [2, 3]]
    assert [capsule["share"] for capsule in found] == pytest.approx([3 / 5, 2 / 5, 0])
    assert [capsule["classes"] for capsule in found] == [[1, 0, 2, 0], [0, 1, 0, 1], [0, 0, 0, 0]]
    # Plain data, as JSON takes it.
    assert json.loads(json.dumps(found)) == found


def test_images_of_two_classes_count_for_both():
    probabilities = np.array([[0.9, 0.1], [0.2, 0.4], [0.7, 0.1]])
    found = capsule_meaning(probabilities, np.array([[0, 2], [1, 2], [2, 0]]))
    assert [meaning["classes"] for meaning in found] == [[2, 0, 2], [0, 1, 1]]


def test_without_labels_and_with_few_images():
    found = capsule_meaning(PROBABILITIES, shown=10)
    assert found[0]["top"] == [0, 1, 3, 2, 4]
    assert all(capsule["classes"] is None for capsule in found)


class Mirror:
    """Decodes a code into itself."""

    CODES = "ball"

    def render(self, capsules):
        return {"images": capsules[..., None]}


# Three codes of two capsules of three dimensions; the first capsule wins the first two.
CODES = np.array(
    [
        [[0.5, 0.1, 0.2], [0.1, 0, 0]],
        [[0.5, -0.1, -0.4], [0.3, 0, 0]],
        [[0.1, 0, 0], [0, 0.6, 0]],
    ],
    "float32",
)


def test_dimensions_are_varied_around_the_mean_of_what_the_capsule_wins():
    rows = mean_traversals(Mirror(), CODES, rows=3, steps=3, span=0.25)[0][0]
    mean = np.array([[0.5, 0, -0.1], [0.2, 0, 0]])
    # As long as its codes are in the mean: a mean of directions is shorter.
    usual = (0.3**0.5 + 0.42**0.5) / 2
    mean[0] *= usual / 0.26**0.5
    # Dimension 2 varies most among the codes it wins, then 1; 0 does not.
    for row, dimension in zip(rows, (2, 1, 0), strict=True):
        expected = np.stack([mean] * 3)
        expected[:, 0, dimension] += [-0.25, 0, 0.25]
        expected[:, 0] *= usual / np.linalg.norm(expected[:, 0], axis=-1, keepdims=True)
        np.testing.assert_allclose(row[..., 0], expected, atol=1e-6)
    assert mean_traversals(Mirror(), CODES, rows=2, steps=3)[0].shape == (2, 2, 3, 2, 3, 1)


def test_codes_keep_their_length():
    rows = mean_traversals(Mirror(), CODES, steps=5, span=2)[0]
    lengths = np.linalg.norm(rows[0][:, :, 0, :, 0], axis=-1)
    assert lengths == pytest.approx(np.full((3, 5), (0.3**0.5 + 0.42**0.5) / 2), rel=1e-5)


def test_codes_that_point_all_ways_have_no_ghost_in_the_middle():
    directions = np.random.default_rng(0).normal(size=(500, 1, 4))
    codes = 0.9 * directions / np.linalg.norm(directions, axis=-1, keepdims=True)
    assert np.linalg.norm(codes.mean(axis=0)) < 0.1
    rows = mean_traversals(Mirror(), codes.astype("float32"), steps=3)[0]
    lengths = np.linalg.norm(rows[0, :, :, 0, :, 0], axis=-1)
    assert lengths == pytest.approx(np.full((4, 3), 0.9), rel=1e-5)


def test_a_capsule_that_wins_nothing_is_varied_around_its_most_probable_image():
    codes = CODES[:2]
    rows = mean_traversals(Mirror(), codes, rows=1, steps=3, span=0.25)[0]
    np.testing.assert_allclose(rows[1, 0, 1, ..., 0], codes[1], atol=1e-6)
