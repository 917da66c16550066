"""Images that are smaller than a model needs are enlarged, in training and afterwards alike.

Rejected: a refusal; new images that are enlarged in another way; a change without a line; a size
that was asked for and is not taken.
"""

import numpy as np
import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe import registry
from keras_capsule_poe.data import ImageData, ImageSet
from keras_capsule_poe.data.pixels import fit_images
from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.training import images, load_data

pytestmark = pytest.mark.filterwarnings("ignore::keras_capsule_poe.errors.TrainingWarning")


def small(n=40, shape=(8, 8), seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *shape, 1), dtype=np.uint8)


@pytest.mark.parametrize(
    "model, shape, size",
    [
        ("capsules", (8, 8), (28, 28)),
        ("capsules", (16, 64), (28, 112)),
        ("capsules", (19, 30), (28, 44)),
        ("capsules", (20, 20), (20, 20)),
        ("neurons", (64, 16), (112, 28)),
        ("capsnet", (8, 8), (28, 28)),
        ("capsnet", (17, 18), (17, 18)),
        ("matrix-capsules", (1, 2), (28, 56)),
        ("rbm", (8, 8), (8, 8)),
    ],
)
def test_small_images_are_enlarged_in_proportion(model, shape, size):
    part = ImageSet(small(shape=shape), np.arange(40) % 2)
    settings = registry.settings(model)
    found = images.watched(ImageData(part, part), settings)
    assert found.image_shape == (*size, 1) and len(found.train) + len(found.held_out) == 40
    settings.check(found.image_shape)
    lines = [line for line in images.described(found) if "enlarged" in line]
    if shape == size:
        assert not lines and found.preparation is None
    else:
        assert len(lines) == 1 and f"to {size[0]}x{size[1]}: this model needs" in lines[0]
        assert "`image_size`" in lines[0] and found.preparation.resized_from == shape
        np.testing.assert_array_equal(found.test.images, fit_images(part.images, size))


def test_a_size_that_is_given_is_taken_or_refused(tmp_path):
    np.savez(tmp_path / "x.npz", images=small())
    for size, expected in ((None, 28), (24, 24), (16, 16)):
        settings = registry.settings("capsules", dataset=str(tmp_path / "x.npz"), image_size=size)
        found = load_data(settings)
        assert found.image_shape == (expected, expected, 1)
        part = ImageSet(small())
        again = images.watched(ImageData(part, part), settings)
        assert again.image_shape == found.image_shape
    with pytest.raises(ConfigError, match="at least 20x20 pixels for this model. Received: 16x16"):
        settings.check(found.image_shape)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    model = kcp.ImageBoltzmannMachine(
        preset="features", hidden=3, autoencoder={"filters": 2}, compute={"precision": "float32"}
    )
    folder = tmp_path_factory.mktemp("small")
    model.fit(small(), epochs=1, verbose=0, folder=folder / "m")
    return model, folder / "m"


def test_new_images_are_enlarged_likewise(trained):
    model, folder = trained
    assert model.image_shape == (28, 28, 1)
    new = small(5, seed=1)
    large = fit_images(new, (28, 28))
    expected = model.encode(large).capsules
    for each in (model, kcp.load(folder)):
        assert each.preparation.resized_from == (8, 8)
        for given in (new, new[..., 0], (new / 255).astype("float32"), list(new)):
            np.testing.assert_allclose(each.encode(given).capsules, expected, atol=1e-5)
        np.testing.assert_allclose(each.encode(new[2]).capsules, expected[2:3], atol=1e-5)
    np.testing.assert_allclose(
        model.predict(new, verbose=0), model.predict(large, verbose=0), atol=1e-5
    )
    assert model.interpolate(new[0], new[1], 3).images.shape == (3, 28, 28, 1)
    assert model.outlier_scores(new[:0]).shape == (0,)


def test_images_of_yet_another_size_are_refused(trained):
    with pytest.raises(ValueError, match=r"must have shape \(N, 28, 28, 1\)"):
        trained[0].encode(small(shape=(9, 8)))


def test_the_same_call_goes_on(trained):
    model, folder = trained
    before = (folder / "rbm" / "model.keras").stat().st_mtime_ns
    again = kcp.ImageBoltzmannMachine.of(model.settings.model_copy(deep=True))
    again.fit(small(), epochs=1, verbose=0, folder=folder)
    assert (folder / "rbm" / "model.keras").stat().st_mtime_ns == before
