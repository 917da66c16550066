"""Images that show several things have no one class: nothing may take them to have one."""

import numpy as np
import pytest

from keras_capsule_poe.data import ImageData, ImageSet
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.accuracy import classification_metrics
from keras_capsule_poe.evaluation.metrics import has_classes


def images(labels):
    return ImageSet(np.zeros((4, 8, 8, 1), np.uint8), labels)


def test_pairs_have_no_one_class():
    single, pairs = images(np.arange(4)), images(np.arange(8).reshape(4, 2))
    assert has_classes(ImageData(single, single))
    assert not has_classes(ImageData(pairs, pairs))
    assert not has_classes(ImageData(single, pairs))


@pytest.mark.parametrize("labels", [None, np.zeros((4, 2), np.int64)])
def test_accuracy_needs_one_label_an_image(labels):
    with pytest.raises(BadUse, match="one label an image. Received: (no labels|labels .4, 2.)"):
        classification_metrics({"classes": np.zeros(4)}, images(labels))
