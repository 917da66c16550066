"""What is drawn for an image is the same wherever it lies: in a slice, or on another device.

Would find: a stream of its own for each slice or device, noise in the layout of the maps, rows
counted from the first at hand.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe.core.fused.blocks import BlockMaps
from keras_capsule_poe.core.sharding import draw_rows, drop_rows, rows_at_hand
from keras_capsule_poe.functions import (
    BinaryUnits,
    EinsumMaps,
    GaussianUnits,
    LatentRouter,
    contrastive_divergence,
)

IMAGES = 5


@pytest.fixture(scope="module")
def arrays():
    random = np.random.default_rng(0)
    x = random.normal(size=(IMAGES, 6, 4)).astype("float32")
    return x, random.normal(size=(6, 3, 2, 4)).astype("float32")


def reconstruction(maps, x, latent, seed=3):
    """Where a chain of two steps of sampling comes to."""
    c = np.full((6, 3), 0.5, "float32")
    given = {"routing": LatentRouter(maps, BinaryUnits())} if latent else {"coefficients": c}
    units = {"hidden": BinaryUnits(), "visible": GaussianUnits()}
    found = contrastive_divergence(maps, x, cd_steps=2, seed=seed, **given, **units)
    return np.asarray(found.reconstruction)


@pytest.mark.some(3)
@pytest.mark.parametrize("latent", [False, True])
@pytest.mark.parametrize("blocks", [False, True])
def test_slices_and_devices_draw_what_a_whole_batch_does(arrays, monkeypatch, latent, blocks):
    x, kernel = arrays
    whole = reconstruction(EinsumMaps(kernel), x, latent)
    assert np.abs(whole - reconstruction(EinsumMaps(kernel), x, latent, seed=4)).max() > 0.1
    maps = BlockMaps if blocks else EinsumMaps
    # Two at a time: the last slice is filled up.
    monkeypatch.setattr(maps, "images_at_once", lambda self, held=1: 2)
    # Sums of float32 in another order.
    np.testing.assert_allclose(reconstruction(maps(kernel), x, latent), whole, atol=1e-5)
    for start, end in ((0, 2), (2, 5)):
        with rows_at_hand(start, IMAGES):
            part = reconstruction(maps(kernel), x[start:end], latent)
        np.testing.assert_allclose(part, whole[start:end], atol=1e-5)


def test_rows_are_cut_from_a_draw_for_all():
    whole = np.asarray(draw_rows(keras.random.normal, (IMAGES, 3), seed=1))
    dropped = np.asarray(drop_rows(np.ones((IMAGES, 40), "float32"), 0.5, seed=1))
    assert set(np.unique(dropped)) == {0, 2}
    for start, end in ((0, 2), (2, 5)):
        with rows_at_hand(start, IMAGES):
            part = draw_rows(keras.random.normal, (end - start, 3), seed=1)
            ones = drop_rows(np.ones((end - start, 40), "float32"), 0.5, seed=1)
        assert np.array_equal(part, whole[start:end])
        assert np.array_equal(ones, dropped[start:end])
