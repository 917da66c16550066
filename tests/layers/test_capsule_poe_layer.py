"""The layer of expert capsules: energy, hand-derived update, regulariser."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import CapsulePoE
from keras_capsule_poe.functions import (
    BinaryUnits,
    CapsuleUnits,
    EinsumMaps,
    contrastive_divergence,
    decoder_rule,
    free_energy,
    probability,
    squash,
)


def built(**options):
    options = {"kernel_initializer": keras.initializers.RandomNormal(stddev=0.5, seed=1), **options}
    layer = CapsulePoE(5, 3, **options)
    layer.build((None, 6, 4))
    return layer


@pytest.fixture
def x():
    z = np.random.default_rng(0).normal(size=(8, 6, 4)).astype("float32")
    return np.asarray(squash(z))


def test_energy_probability_and_output_belong_together(x):
    layer = built()
    z = layer.route(x).z
    for method, function in (
        ("log_odds", CapsuleUnits().log_odds),
        ("probability", probability),
    ):
        got = getattr(layer, method)(x)
        assert got.shape == (8, 5)
        np.testing.assert_allclose(got, function(z), rtol=1e-6)
    assert layer.free_energy(x).shape == (8,)
    np.testing.assert_allclose(layer.free_energy(x), free_energy(z), rtol=1e-6)
    # float32: an expert's length is its probability.
    np.testing.assert_allclose(np.linalg.norm(layer(x), axis=-1), layer.probability(x), rtol=1e-5)


@pytest.mark.parametrize("implementation", ["reference", "fused"])
@pytest.mark.parametrize("softmax_over", ["inputs", "outputs"])
def test_contrastive_divergence_at_the_layers_own_routing(x, implementation, softmax_over):
    layer = built(
        implementation=implementation, softmax_over=softmax_over, activation_prior_weight=0.5
    )
    c = layer.route(x).coefficients
    expected = contrastive_divergence(EinsumMaps(np.asarray(layer.kernel)), x, c)
    got = layer.contrastive_divergence(x)
    for a, b in zip(got[:4], expected[:4]):
        # float32 in another order; numbers up to 5.
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)
    np.testing.assert_allclose(layer.mean_field_step(x), got.reconstruction, rtol=1e-3, atol=1e-5)


def test_another_energy_needs_only_other_units(x):
    class BinaryPoE(CapsulePoE):
        units = visible_units = BinaryUnits()

    layer = BinaryPoE(5, 3, implementation="reference")
    layer.build((None, 6, 4))
    z = np.asarray(layer.route(x).z)
    np.testing.assert_allclose(layer(x), 1 / (1 + np.exp(-z)), rtol=1e-5)
    np.testing.assert_allclose(layer.free_energy(x), -np.log1p(np.exp(z)).sum((1, 2)), rtol=1e-5)
    drawn = layer.contrastive_divergence(x, cd_steps=3, seed=1).reconstruction
    assert set(np.unique(drawn)) == {0.0, 1.0}


@pytest.mark.parametrize("implementation", ["reference", "fused"])
def test_decoder_divergence_at_the_layers_own_routing(x, implementation):
    layer = built(implementation=implementation)
    z = np.random.default_rng(1).normal(size=(8, 5, 3)).astype("float32")
    c = layer.route(x).coefficients
    expected = decoder_rule(EinsumMaps(np.asarray(layer.kernel)), x, z, c)
    for a, b in zip(layer.decoder_divergence(x, z)[:4], expected[:4]):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize(
    "regularizer",
    [
        None,
        keras.regularizers.L1(0.03),
        keras.regularizers.L2(0.02),
        keras.regularizers.L1L2(0.03, 0.02),
        "l2",
    ],
)
def test_regularization_gradient_is_the_gradient_of_the_regularizer(regularizer):
    layer = built(kernel_regularizer=regularizer)
    got = np.asarray(layer.regularization_gradient())
    assert got.shape == layer.kernel.shape
    if regularizer is None:
        assert not np.any(got)
        return
    with tf.GradientTape() as tape:
        (penalty,) = layer.losses
    # Two float32 operations.
    np.testing.assert_allclose(got, tape.gradient(penalty, layer.kernel.value), rtol=1e-6)


@pytest.mark.parametrize(
    "regularizer",
    [keras.regularizers.OrthogonalRegularizer(), lambda kernel: 0.0 * tf.reduce_sum(kernel)],
)
def test_unknown_regularizers_are_refused(regularizer):
    with pytest.raises(ValueError, match=r"`kernel_regularizer` .*Received: kernel_regularizer="):
        CapsulePoE(5, 3, kernel_regularizer=regularizer)


def test_maps_of_zero_give_experts_that_are_off(x):
    layer = built(kernel_initializer="zeros")
    assert not np.any(np.asarray(layer(x)))
    assert not np.any(np.asarray(layer.free_energy(x)))
    assert not np.any(np.asarray(layer.contrastive_divergence(x).gradient))


def test_climbing_the_update_makes_the_chain_reproduce_the_data(x):
    layer = built(kernel_initializer=keras.initializers.RandomNormal(stddev=0.1, seed=2))

    @tf.function(autograph=False)
    def climb():
        step = layer.contrastive_divergence(x)
        layer.kernel.assign_add(step.gradient)
        return tf.reduce_sum((step.reconstruction - x) ** 2) / tf.reduce_sum(x**2)

    errors = [float(climb()) for _ in range(50)]
    # Untrained maps give nothing back, a relative error of one.
    assert errors[0] > 0.9
    assert errors[-1] < 0.5


def test_mixed_bfloat16_update_is_close_to_float32(x):
    for implementation in ("reference", "fused"):
        half = built(dtype="mixed_bfloat16", implementation=implementation)
        full = built(implementation=implementation)
        got = half.contrastive_divergence(tf.cast(x, "bfloat16")).gradient
        expected = np.asarray(full.contrastive_divergence(x).gradient)
        # Eight bits of mantissa in x, W and (plain) every product.
        error = np.abs(np.asarray(tf.cast(got, "float32")) - expected).max()
        assert error < 0.03 * np.abs(expected).max()
