"""Masks of padding: what is masked changes nothing.

Rejected: a mask that is dropped, a softmax over inputs that counts padding, and a mean
coefficient that counts it.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe import (
    CapsuleLength,
    CapsulePoE,
    NeuronPoE,
    RoutingLayer,
    SelfAttentionRouting,
    Squash,
)

FORMS = {
    "default": {},
    "plain": {"implementation": "reference"},
    "dot": {"agreement": "dot", "leaky": True, "use_bias": True},
    "biased": {"use_routing_bias": True, "activation_prior_weight": 0.5},
    "inputs": {"softmax_over": "inputs"},
    "inputs, plain": {"softmax_over": "inputs", "implementation": "reference", "use_bias": True},
    "mean": {"softmax_over": "inputs", "coefficient_sum": "mean", "agreement": "dot"},
    "no iterations": {"softmax_over": "inputs", "routing_iterations": 1},
}


def capsules(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_routing_ignores_what_is_masked(shared):
    for form in FORMS:
        check_routing(form, shared)


def check_routing(form, shared):
    keras.utils.set_random_seed(0)
    layer = RoutingLayer(3, 4, shared_weights=shared, **FORMS[form])
    x, kept = capsules(2, 7, 5), np.array([[1, 1, 1, 0, 1, 0, 0], [1] * 7], bool)
    layer.build((None, 7, 5))
    found = layer.route(x, mask=kept)
    # The content of padding has no effect, also in the gradient.
    other = np.where(kept[..., None], x, 50.0).astype("float32")
    np.testing.assert_allclose(layer(other, mask=kept), layer(x, mask=kept), rtol=1e-5, atol=1e-6)
    coefficients = np.asarray(found.coefficients)
    assert np.all(coefficients[~kept] == 0) and np.any(coefficients[kept] != 0)
    # An image without padding is routed as without a mask.
    np.testing.assert_allclose(found.z[1], layer.route(x).z[1], rtol=1e-4, atol=1e-6)
    if form in ("mean", "inputs"):
        total = kept.sum(axis=1) if form == "mean" else np.ones(2)
        np.testing.assert_allclose(coefficients.sum(axis=1), total[:, None] * np.ones(3), rtol=1e-5)
    if shared:
        # As if the padding was not there.
        alone = layer.route(x[:1][:, kept[0]])
        np.testing.assert_allclose(found.z[0], alone.z[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            coefficients[0][kept[0]], alone.coefficients[0], rtol=1e-4, atol=1e-6
        )


def test_uniform_coefficients_are_masked():
    layer = RoutingLayer(3, 4, shared_weights=True, softmax_over="inputs")
    x, kept = capsules(1, 6, 5), np.array([[1, 1, 1, 1, 0, 0]], bool)
    layer.build((None, 6, 5))
    found = layer.route(x, "uniform", kept)
    np.testing.assert_allclose(found.coefficients[0, :, 0], [0.25] * 4 + [0] * 2, rtol=1e-6)


@pytest.mark.parametrize("implementation", ["fused", "reference"])
@pytest.mark.parametrize("routing", ["attention", "uniform"])
def test_self_attention_ignores_what_is_masked(routing, implementation):
    layer = SelfAttentionRouting(3, 4, routing=routing, implementation=implementation)
    x, kept = capsules(2, 7, 5), np.array([[1, 1, 1, 0, 1, 0, 0], [1] * 7], bool)
    layer.build((None, 7, 5))
    layer.bias.assign(capsules(7, 3))
    other = np.where(kept[..., None], x, 50.0).astype("float32")
    np.testing.assert_allclose(layer(other, mask=kept), layer(x, mask=kept), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer(x, mask=kept)[1], layer(x)[1], rtol=1e-5, atol=1e-6)
    assert np.all(np.asarray(layer.route(x, kept).coefficients)[~kept] == 0)


@pytest.mark.parametrize("form", ["default", "mean", "dot"])
def test_pads_change_no_class_of_a_text(form):
    keras.utils.set_random_seed(0)
    words = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(50, 8, mask_zero=True)(words)
    x = RoutingLayer(3, 8, shared_weights=True, **FORMS[form])(Squash()(x))
    model = keras.Model(words, CapsuleLength()(x))
    texts = np.random.default_rng(0).integers(1, 50, size=(40, 10))
    padded = np.pad(texts, ((0, 0), (0, 90)))
    p, of_padded = model(texts), model(padded)
    np.testing.assert_allclose(of_padded, p, rtol=1e-4, atol=1e-6)
    # `fit` and `predict` see masks, too.
    model.compile("sgd", "mse", jit_compile=False)
    found = model.evaluate(padded, np.zeros((40, 3)), verbose=0)
    assert found == pytest.approx(np.mean(np.square(p)), rel=1e-4)
    model.fit(padded, np.zeros((40, 3)), verbose=0)


def test_a_mask_goes_through_squash_and_length():
    x, kept = capsules(2, 4, 3), np.array([[1, 1, 0, 0], [1, 1, 1, 1]], bool)
    masked = keras.layers.Masking()(np.where(kept[..., None], x, 0).astype("float32"))
    squashed = Squash()(masked)
    lengths = CapsuleLength()(squashed)
    for found in (squashed, lengths):
        np.testing.assert_array_equal(keras.src.backend.get_keras_mask(found), kept)
    lengths = CapsuleLength()(x, mask=kept)
    np.testing.assert_allclose(lengths, kept * np.linalg.norm(x, axis=-1), rtol=1e-5)


def test_who_supports_masks():
    assert CapsulePoE(2, 3).supports_masking
    # Its energy is one of all visible neurons: Keras warns that a mask is lost.
    assert not NeuronPoE(2, 3).supports_masking
    layer = RoutingLayer(2, 3, shared_weights=True)
    masked = keras.layers.Masking()(capsules(2, 4, 3))
    assert keras.src.backend.get_keras_mask(layer(masked)) is None
