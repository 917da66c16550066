"""Images like affNIST's: from their six numbers, by SciPy, from the digits that they are of."""

import numpy as np
import pytest
from scipy import ndimage

from keras_capsule_poe.data import ImageSet, load_images
from keras_capsule_poe.data.augmentation import affine_matrix, warp
from keras_capsule_poe.data.composed import Affine


@pytest.fixture(scope="module")
def digits():
    """Digits of 20x20 pixels in the middle of 28x28, as MNIST has them: they fit when enlarged."""
    small = load_images("digits", image_size=20).test
    return ImageSet(np.pad(small.images, ((0, 0), (4, 4), (4, 4), (0, 0))), small.labels)


@pytest.fixture(scope="module")
def batch(digits):
    return Affine()(digits.images, digits.labels, np.random.default_rng(0))


def test_shapes_and_dtypes(digits, batch):
    n = len(digits)
    assert {name: (array.shape, array.dtype.name) for name, array in batch.items()} == {
        "images": ((n, 40, 40, 1), "uint8"),
        "labels": ((n,), "int64"),
        "affine": ((n, 6), "float32"),
    }
    assert np.array_equal(batch["labels"], digits.labels)


def test_six_numbers_and_scipy_give_the_image_again(digits, batch):
    for image, found, numbers in zip(digits.images[:60], batch["images"], batch["affine"]):
        degrees, shear, vertical, horizontal, down, right = numbers.astype(float)
        angle = np.deg2rad(degrees)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        matrix = turn @ [[1, 0], [-shear, 1]] @ np.diag([vertical, horizontal])
        inverse = np.linalg.inv(matrix)
        offset = 13.5 - inverse @ (np.array([19.5, 19.5]) + [down, right])
        expected = ndimage.affine_transform(
            image[..., 0].astype(float), inverse, offset, (40, 40), order=1, mode="grid-constant"
        )
        # Half a grey level of rounding, and float32 numbers.
        np.testing.assert_allclose(found[..., 0], expected, atol=0.52)


def test_ranges_and_means(digits):
    """A uniform law's mean is within 5 deviations / sqrt(n) of its middle, and fills its range."""
    composition = Affine()
    n = 20_000
    drawn = composition.draw(n, None, np.random.default_rng(0))
    ranges = {"rotation": (-20, 20), "shear": (-0.2, 0.2), "scale": (0.8, 1.2), "place": (0, 1)}
    assert drawn.keys() == ranges.keys()
    for name, (low, high) in ranges.items():
        for values in drawn[name].reshape(n, -1).T:
            width = high - low
            assert low <= values.min() < low + width / 1000
            assert high - width / 1000 < values.max() <= high
            assert abs(values.mean() - (low + high) / 2) < 5 * width / np.sqrt(12 * n)
            assert values.std() == pytest.approx(width / np.sqrt(12), rel=0.02)


def test_no_ink_leaves_the_canvas_and_it_reaches_all_edges(digits, batch):
    numbers = batch["affine"].astype(float)
    matrices = affine_matrix(numbers[:, 0], numbers[:, 1], numbers[:, 2:4])
    wider = warp(digits.images, matrices, numbers[:, 4:], (60, 60))
    inside = wider[:, 10:50, 10:50]
    outside = np.abs(wider).sum(axis=(1, 2, 3)) - np.abs(inside).sum(axis=(1, 2, 3))
    # The numbers are stored as float32: at an edge 1e-6 of a pixel may lie beyond it.
    assert outside.max() < 0.1
    edges = [inside[:, 0], inside[:, -1], inside[:, :, 0], inside[:, :, -1]]
    assert all(edge.max() > 1 for edge in edges)


def test_translations_are_uniform_among_those(digits):
    """The same digit many times: from edge to edge, half of them on either side of the middle."""
    image = np.zeros((500, 28, 28, 1), np.uint8)
    image[:, 8:20, 10:18] = 255
    still = Affine(rotation=0, shear=0, scale=0)
    found = still(image, None, np.random.default_rng(0))["affine"][:, 4:]
    # Rows 8 to 19 of 28 lie at 14 to 25 of 40: 14 up and down; columns 16 to 23: 16 and 16.
    for moved, most in zip(found.T, (14, 16)):
        assert -most <= moved.min() < -0.97 * most and 0.97 * most < moved.max() <= most
        assert abs(moved.mean()) < 5 * 2 * most / np.sqrt(12 * 500)


def test_what_is_too_large_comes_to_the_middle():
    full = np.full((3, 28, 28, 1), 255, np.uint8)
    composition = Affine(pad=0)
    affine = composition(full, None, np.random.default_rng(0))["affine"]
    large = affine[:, 2:4].min(axis=1) > 1
    assert large.any() and np.abs(affine[large, 4:]).max() < 1e-5


def test_images_without_ink_and_without_labels():
    dark = Affine()(np.zeros((5, 28, 28, 3), np.uint8), None, np.random.default_rng(0))
    assert dark.keys() == {"images", "affine"}
    assert not dark["images"].any() and np.isfinite(dark["affine"]).all()
