"""Whitening of experts: the squash until adapted, then orientations spread evenly."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import ExpertFrames, Whitening
from keras_capsule_poe.functions import squash
from keras_capsule_poe.models.capsule_poe.layers import shared_axes

J, E = 3, 4


def layer():
    whitening = Whitening()
    whitening.build((None, J, E))
    return whitening


def elongated(n=4000, seed=0):
    """Experts (n, J, E) before the squash, with mean and covariance far from isotropic."""
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(J, E, E)) * np.array([2.0, 1.0, 0.7, 0.5])
    mean = 4 * random.normal(size=(J, E))
    return mean + np.einsum("jef,njf->nje", mixing, random.normal(size=(n, J, E)))


def test_without_adapt_it_is_the_squash():
    z = np.random.default_rng(1).normal(size=(5, J, E)).astype("float32")
    z[0, 0] = 0
    np.testing.assert_allclose(layer()(z), squash(z), rtol=1e-6, atol=1e-7)


def test_the_length_stays_the_probability():
    whitening, z = layer(), elongated()
    whitening.adapt([z[:, j] for j in range(J)])
    x = np.asarray(whitening(z.astype("float32")))
    square = np.sum(z**2, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), square / (1 + square), rtol=1e-4)


def test_orientations_are_those_of_the_whitened_expert():
    whitening, z = layer(), elongated()
    whitening.adapt([z[:, j] for j in range(J)])
    found = np.asarray(whitening(z.astype("float32")))
    for j in range(J):
        variances, axes = np.linalg.eigh(np.cov(z[:, j].T))
        turned = (z[:, j] - z[:, j].mean(axis=0)) @ (axes / np.sqrt(variances)) @ axes.T
        expected = turned / np.linalg.norm(turned, axis=-1, keepdims=True)
        direction = found[:, j] / np.linalg.norm(found[:, j], axis=-1, keepdims=True)
        np.testing.assert_allclose(direction, expected, atol=2e-3)  # float32, condition 200
        # Gaussian experts: directions uniform on the sphere, second moment I/E. The error of a
        # mean of 4000 products of size 1/4 is about 0.004; five of them.
        np.testing.assert_allclose(direction.T @ direction / len(z), np.eye(E) / E, atol=0.02)
        assert np.abs(direction.mean(axis=0)).max() < 0.04


def test_dimensions_follow_what_moves_the_causes_most():
    """Singular vectors of the covariance, strongest first: not of that of z, nor in any order."""
    random = np.random.default_rng(3)
    z = random.normal(size=(500, E)) * np.array([5.0, 1.0, 2.0, 0.1]) + 3.0
    causes = (z * np.array([0.1, 4.0, 1.0, 2.0])) @ random.normal(size=(E, 30))
    axes = shared_axes(causes, z)
    covariance = (causes - causes.mean(axis=0)).T @ (z - z.mean(axis=0))
    expected = np.linalg.svd(covariance, full_matrices=False)[2].T
    np.testing.assert_allclose(np.abs(np.sum(axes * expected, axis=0)), 1, atol=1e-9)
    np.testing.assert_allclose(axes.T @ axes, np.eye(E), atol=1e-12)
    by_variance = np.linalg.eigh(np.cov(z.T))[1]
    assert np.abs(np.sum(axes[:, 0] * by_variance[:, -1])) < 0.9
    assert (np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0) > 0).all()


def test_axes_turn_the_whitened_expert():
    """By those of the rows that have causes, and without another change."""
    z, known = elongated(), 500
    causes = [z[:known, j] @ np.random.default_rng(j).normal(size=(E, 9)) for j in range(J)]
    plain, turned = layer(), layer()
    plain.adapt([z[:, j] for j in range(J)])
    turned.adapt([z[:, j] for j in range(J)], lambda expert: causes[expert])
    x = z[:50].astype("float32")
    before, after = np.asarray(plain(x)), np.asarray(turned(x))
    for j in range(J):
        turn = shared_axes(causes[j], z[:known, j])
        assert np.abs(turn - np.eye(E)).max() > 0.1
        np.testing.assert_allclose(after[:, j], before[:, j] @ turn, atol=1e-5)


def test_an_expert_with_few_images_keeps_its_frame():
    whitening, z = layer(), elongated()
    whitening.adapt([z[:, 0], z[: 2 * E - 1, 1], np.ones((50, E))])
    assert not np.allclose(whitening.whitening[0], np.eye(E))
    for unchanged in (1, 2):
        np.testing.assert_array_equal(whitening.whitening[unchanged], np.eye(E))
        np.testing.assert_array_equal(whitening.center[unchanged], np.zeros(E))


def test_the_floor_limits_the_whitening():
    whitening = layer()
    z = np.random.default_rng(2).normal(size=(500, E)) * np.array([1, 1, 1, 1e-6])
    whitening.adapt([z] * J, floor=1e-2)
    gains = np.linalg.eigvalsh(np.asarray(whitening.whitening[0]))
    assert gains.max() / gains.min() < 10.1  # sqrt(1/floor)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="one array for each of 3 experts. Received: 2"):
        layer().adapt([np.ones((9, E))] * 2)
    with pytest.raises(ValueError, match="finite capsules. Received: NaN or infinity for expert 1"):
        layer().adapt([np.ones((9, E)), np.full((9, E), np.nan), np.ones((9, E))])


@pytest.mark.parametrize("kind", [Whitening, ExpertFrames])
def test_save_and_load(tmp_path, kind):
    """Also by the former name, by which files find their weights."""
    inputs = keras.Input((J, E))
    model = keras.Model(inputs, kind()(inputs))
    z = elongated(200).astype("float32")
    model.layers[-1].adapt([z[:, j] for j in range(J)])
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(z), model(z))
