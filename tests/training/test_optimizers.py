"""Muon for convolutions: orthogonal steps of filters, Adam's for all else."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import registry
from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.models.base import networks as fitting
from keras_capsule_poe.models.base.features import autoencoder_optimizer
from keras_capsule_poe.training.optimizers import (
    AveragedAdam,
    AveragedMuon,
    ConvolutionMuon,
    orthogonalized,
)


def newton_schulz(x, iterations):
    """The iteration as Jordan et al. write it, in float64."""
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(iterations):
        a = x.T @ x
        x = 3.4445 * x + x @ (-4.7750 * a + 2.0315 * a @ a)
    return x


@pytest.mark.parametrize("shape", [(200, 16), (16, 200), (9, 9), (30, 1)])
def test_the_small_iteration_is_the_large_one(shape):
    matrix = np.random.default_rng(0).normal(size=shape)
    wide = shape[0] < shape[1]
    expected = newton_schulz(matrix.T, 5).T if wide else newton_schulz(matrix, 5)
    ours = orthogonalized(keras.ops.convert_to_tensor(matrix.astype("float32")), size=0.3) / 0.3
    ours = np.asarray(ours)
    # The products of the factor add rounding of 1e-6 or so to each other.
    assert np.abs(ours - expected).max() < 1e-4 * np.abs(expected).max()


def test_singular_vectors_stay_and_values_come_near_one():
    random = np.random.default_rng(1)
    u, _ = np.linalg.qr(random.normal(size=(60, 8)))
    v, _ = np.linalg.qr(random.normal(size=(8, 8)))
    matrix = u * np.geomspace(1, 0.05, 8) @ v.T
    ours = np.asarray(orthogonalized(keras.ops.convert_to_tensor(matrix.astype("float32"))))
    inner = u.T @ ours @ v
    assert np.abs(inner - np.diag(np.diag(inner))).max() < 1e-4
    # Jordan et al. give 0.7 to 1.2 for what these coefficients converge to.
    assert 0.65 < np.diag(inner).min() and np.diag(inner).max() < 1.25


def variables(*shapes):
    random = np.random.default_rng(2)
    made = [keras.Variable(random.normal(size=shape).astype("float32")) for shape in shapes]
    gradients = [random.normal(size=shape).astype("float32") for shape in shapes]
    return made, gradients


def test_filters_move_orthogonally_and_all_else_as_by_adam():
    shapes = [(3, 3, 8, 16), (3, 3, 1, 16), (3, 3, 16, 3), (16,)]
    ours, gradients = variables(*shapes)
    theirs, _ = variables(*shapes)
    before = np.asarray(ours[0])
    muon, adam = ConvolutionMuon(1e-2), keras.optimizers.Adam(1e-2)
    for _ in range(3):
        muon.apply(gradients, ours)
        adam.apply(gradients, theirs)
    for a, b in list(zip(ours, theirs))[1:]:
        np.testing.assert_array_equal(a, b)
    # The momentum of equal gradients points along them: three equal steps.
    step = (before - np.asarray(ours[0])).reshape(-1, 16) / 3
    expected = (
        0.2 * np.sqrt(72) * 1e-2 * newton_schulz(gradients[0].reshape(-1, 16).astype("float64"), 5)
    )
    assert np.abs(step - expected).max() < 1e-4 * np.abs(expected).max()


def test_momentum_is_nesterovs():
    (ours,), (first,) = variables((3, 3, 8, 8))
    second = np.random.default_rng(3).normal(size=first.shape).astype("float32")
    muon = ConvolutionMuon(1e-2, momentum=0.5)
    muon.apply([first], [ours])
    before = np.asarray(ours)
    muon.apply([second], [ours])
    score = second + 0.5 * (0.5 * first + second)
    expected = 0.2 * np.sqrt(72) * 1e-2 * newton_schulz(score.reshape(-1, 8).astype("float64"), 5)
    step = (before - np.asarray(ours)).reshape(-1, 8)
    assert np.abs(step - expected).max() < 1e-4 * np.abs(expected).max()


def test_a_zero_gradient_moves_nothing():
    (ours,), _ = variables((3, 3, 8, 8))
    before = np.asarray(ours)
    ConvolutionMuon(1e-2).apply([np.zeros(before.shape, "float32")], [ours])
    np.testing.assert_array_equal(ours, before)


def test_config_round_trip():
    muon = ConvolutionMuon(1e-2, momentum=0.9, newton_schulz=3)
    copy = ConvolutionMuon.from_config(muon.get_config())
    assert (copy.momentum, copy.newton_schulz) == (0.9, 3)


def test_classifiers_may_have_it():
    config = registry.settings("capsnet")
    assert not isinstance(fitting.optimizer(config.capsnet, 100), ConvolutionMuon)
    config.set("capsnet.optimizer", "muon")
    assert isinstance(fitting.optimizer(config.capsnet, 100), ConvolutionMuon)
    assert not fitting.optimizer(config.capsnet, 100).use_ema
    config.set("capsnet.ema_momentum", 0.9)
    for name, kind in (("adam", AveragedAdam), ("muon", AveragedMuon)):
        config.set("capsnet.optimizer", name)
        found = fitting.optimizer(config.capsnet, 100)
        assert (type(found), found.use_ema, found.ema_momentum) == (kind, True, 0.9)
    with pytest.raises(ConfigError, match="capsnet.optimizer must be 'adam' or 'muon'"):
        config.set("capsnet.optimizer", "sgd")


def test_the_autoencoder_s_rate_warms_up_and_decays():
    settings = registry.settings("capsules", autoencoder={"epochs": 1, "batch_size": 1})
    muon = autoencoder_optimizer(settings.autoencoder, 100)
    assert isinstance(muon, ConvolutionMuon)
    # A short warm-up, then down along a cosine.
    rates = [float(muon._learning_rate(step)) for step in (0, 10, 100)]
    assert rates == pytest.approx([2e-4, 2e-3, 4e-5])
