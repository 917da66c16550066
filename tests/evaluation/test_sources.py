"""Images that stand in for real ones come from where they are said to."""

import numpy as np
import pytest

from keras_capsule_poe.data import ImageData
from keras_capsule_poe.evaluation.figures import most_probable
from keras_capsule_poe.evaluation.sources import image_sources, routing_off


@pytest.fixture
def data(image_set):
    return ImageData(image_set(80, 1), image_set(30, 2))


def test_each_source_is_what_it_says(model, data):
    drawn = {name: draw() for name, draw in image_sources(model, data, 30, 60, seed=4).items()}
    test = data.test.images.astype("float32") / 255
    for name, expected in (("autoencoder", model.autoencoder(test)), ("whole_code", model(test))):
        np.testing.assert_allclose(drawn[name][0], expected, atol=1e-5)
    real = {image.tobytes() for image in data.train.images}
    assert {image.tobytes() for image in drawn["real"][0]} <= real
    for name, (images, capsule) in drawn.items():
        assert images.shape[1:] == (20, 20, 1)
        assert len(images) == (30 if name in ("autoencoder", "whole_code", "routing_off") else 60)
        assert (capsule is None) == (name not in ("visited", "restricted", "complete"))
    # Controls differ, and are drawn anew with another seed.
    names = ("diagonal_gaussian", "full_gaussian", "gaussian_mixture")
    assert len({drawn[name][0].tobytes() for name in names}) == 3
    other = image_sources(model, data, 30, 60, seed=5)["full_gaussian"]()[0]
    assert not np.array_equal(other, drawn["full_gaussian"][0])


def test_routing_off_is_uniform_and_ends(model, image_set):
    x = model.to_primary(image_set(6, 3).images.astype("float32") / 255)
    experts = model.encoder.experts
    before = np.array(experts.route(x).coefficients)
    with routing_off(model):
        c = np.array(experts.route(x).coefficients)
        np.testing.assert_allclose(c, np.full_like(c, c.flat[0]), rtol=1e-6)
    assert before.std() > 1e-4
    np.testing.assert_array_equal(experts.route(x).coefficients, before)
    with pytest.raises(RuntimeError), routing_off(model):
        raise RuntimeError
    np.testing.assert_array_equal(experts.route(x).coefficients, before)


def test_the_most_probable_capsule_stays_alone():
    codes = np.array([[[0.1, 0.2], [0.0, 0.9]], [[0.5, 0.5], [0.3, 0.0]]], "float32")
    expected = codes.copy()
    expected[0, 0] = expected[1, 1] = 0
    np.testing.assert_array_equal(most_probable(codes), expected)
