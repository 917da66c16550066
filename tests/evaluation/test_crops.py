"""Classifiers asked about 13 windows of each image.

Rejected: windows of other places or of another size, one counted twice, a class by the majority
instead of the mean, windows that leave the image.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe.data import ImageSet
from keras_capsule_poe.data.augmentation import center_crop
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.accuracy import classified
from keras_capsule_poe.evaluation.ensemble import classified_crops

# Rows down and columns to the right of the middle.
PLACES = [(0, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (2, 2), (2, -2), (-2, 2), (-2, -2),
          (3, 3), (3, -3), (-3, 3), (-3, -3)]  # fmt: skip


class Corners:
    """Three probabilities from numbers that no two windows share, of any window it is given."""

    TITLE = "Corners"

    def __init__(self, height=4, width=6):
        self.view = keras.layers.CenterCrop(height, width, data_format="channels_last")

    def classify(self, images):
        seen = self.view(images)
        first, last = seen[:, 0, 0, 0], seen[:, -1, -1, 0]
        p = keras.ops.stack([first**2, first * last, keras.ops.sqrt(last)], axis=1)
        return {"probabilities": p, "classes": keras.ops.argmax(p, axis=1)}


@pytest.fixture
def images():
    # A room of 7 rows, whose middle is not a whole number, and of 6 columns: none to spare.
    shown = np.random.default_rng(0).integers(0, 256, (40, 11, 12, 1)).astype("uint8")
    return ImageSet(shown)


def test_the_mean_over_13_windows(images):
    pixels = images.images[..., 0] / 255
    expected = np.zeros((40, 3))
    for down, right in PLACES:
        first = pixels[:, 3 + down, 3 + right]
        last = pixels[:, 3 + down + 3, 3 + right + 5]
        expected += np.stack([first**2, first * last, np.sqrt(last)], axis=1) / 13
    found = classified_crops(Corners(), images)
    # Float32 numbers up to one.
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
    np.testing.assert_array_equal(found["classes"], expected.argmax(axis=1))
    assert np.any(found["classes"] != classified(Corners(), images)["classes"])


def test_the_one_in_the_middle_is_what_the_model_sees_by_itself(images):
    middle = ImageSet(center_crop(images.images[:, :, :11], 5))
    whole = ImageSet(images.images[:, :, :11])
    model = Corners(5, 5)
    for name, found in classified(model, whole).items():
        np.testing.assert_array_equal(found, classified(model, middle)[name])


def test_where_no_window_moves_there_are_no_crops(images):
    with pytest.raises(BadUse, match="must be 6 pixels larger.*11x12 and a window of 6x6"):
        classified_crops(Corners(6, 6), images)
    model = Corners()
    model.view = None
    with pytest.raises(BadUse, match="sees a window.*Received: Corners that sees all of it"):
        classified_crops(model, images)
    with pytest.raises(BadUse, match="Received: Nothing$"):
        classified_crops(type("Nothing", (), {"TITLE": "Nothing"})(), images)
