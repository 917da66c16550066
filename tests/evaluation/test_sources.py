"""Images that stand in for real ones come from where they are said to."""

import numpy as np
import pytest

from keras_capsule_poe.data import ImageData
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.baselines import baseline_set
from keras_capsule_poe.evaluation.sources import image_sources, nearest_to_training


@pytest.fixture
def data(image_set):
    return ImageData(image_set(80, 1), image_set(30, 2))


@pytest.mark.long
def test_each_source_is_what_it_says(model, data, monkeypatch):
    def sources(seed, **options):
        baselines = baseline_set("trained", model, seed)
        return image_sources(model, data, 30, 60, seed, baselines, **options)

    drawn = {name: draw() for name, draw in sources(seed=4).items()}
    test = data.test.images.astype("float32") / 255
    off = model.decode(model.code(test, coefficients="uniform")["capsules"])["images"]
    expected = {"autoencoder": model.autoencoder(test), "whole_code": model(test)}
    for name, images in {**expected, "routing_off": off}.items():
        np.testing.assert_allclose(drawn[name][0], images, atol=1e-5)
    assert list(drawn) == [
        "real", "autoencoder", "whole_code", "routing_off", "posterior", "half_space", "prior",
        "joint", "diagonal_gaussian", "full_gaussian", "gaussian_mixture", "boltzmann_machine",
    ]  # fmt: skip
    assert nearest_to_training(model) == ("posterior", "joint")
    real = {image.tobytes() for image in data.train.images}
    assert {image.tobytes() for image in drawn["real"][0]} <= real
    for name, (images, capsule) in drawn.items():
        assert images.shape[1:] == (20, 20, 1)
        assert len(images) == (30 if name in ("autoencoder", "whole_code", "routing_off") else 60)
        assert (capsule is None) == (name not in ("posterior", "half_space", "prior"))
    # Controls differ, and are drawn anew with another seed.
    names = ("diagonal_gaussian", "full_gaussian", "gaussian_mixture", "boltzmann_machine")
    assert len({drawn[name][0].tobytes() for name in names}) == 4
    other = sources(seed=5)["full_gaussian"]()[0]
    assert not np.array_equal(other, drawn["full_gaussian"][0])
    # Features that are known are not computed anew, and are the same.
    rows = np.random.default_rng(4).permutation(80)
    features = map_batches(model.to_features, data.train.images[rows])
    monkeypatch.setattr(type(model), "to_features", None)
    known = sources(seed=4, features=features)["full_gaussian"]()[0]
    np.testing.assert_array_equal(known, drawn["full_gaussian"][0])
