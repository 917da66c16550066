"""How much is taken at a time: what suits a cache on a processor, more elsewhere, the same numbers.

Rejected: a number that is fixed when the package is imported, before devices are set up.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe import ConvEMCapsules, RoutingLayer
from keras_capsule_poe.core import numerics as processor
from keras_capsule_poe.core.fused import blocks
from keras_capsule_poe.core.fused import shared_maps as shared
from keras_capsule_poe.core.sharding import over_images
from keras_capsule_poe.models.matrix_capsules import fused_em as em


@pytest.fixture
def elsewhere(monkeypatch):
    """Function after which the device is none of a processor's."""

    def go():
        monkeypatch.setattr(processor, "on_processor", lambda: False)
        monkeypatch.setattr(em, "on_processor", lambda: False)

    return go


def test_elsewhere_more_is_taken(elsewhere):
    maps = blocks.BlockMaps(np.zeros((1152, 10, 16, 8), "float32"))
    weights = shared.SharedMaps(np.zeros((1, 10, 16, 8), "float32"), 36)
    before = [maps.images_at_once(), weights.images_at_once(held=3)]
    elsewhere()
    after = [maps.images_at_once(), weights.images_at_once(held=3)]
    # Whole images.
    assert [large // small for small, large in zip(before, after)] == [32, 32]


def capsules():
    kernel = {"kernel_initializer": keras.initializers.RandomNormal(seed=0)}
    random = np.random.default_rng(0)
    images, capsules = random.normal(size=(2, 40, 30, 6)).astype("float32")
    matrices = random.normal(size=(40, 5, 5, 2, 2, 2)).astype("float32")
    activations = random.uniform(size=(40, 5, 5, 2)).astype("float32")
    routing = RoutingLayer(4, 5, implementation="fused", **kernel)
    layer = ConvEMCapsules(3, kernel_size=3, implementation="fused", **kernel)
    return [routing(images), *layer((matrices, activations))]


@pytest.mark.long
def test_the_numbers_are_the_same(elsewhere, monkeypatch):
    for module, name in ((blocks, "BLOCK"), (em, "AT_ONCE")):
        monkeypatch.setattr(module, name, 700)
    calls = []

    def over(step, arrays, images, *arguments, **options):
        calls.append((images, options))
        return over_images(step, arrays, images, *arguments, **options)

    monkeypatch.setattr(em, "over_images", over)
    few = capsules()
    elsewhere()
    for a, b in zip(few, capsules(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    (few_images, side_by_side), (more_images, alone) = calls
    # 1,944 numbers an image: votes of 18 children for three parents at each of nine places.
    assert (few_images, more_images) == (1, 32 * 700 // 1944)
    assert (side_by_side, alone) == ({"together": 2}, {"together": 1})
