"""The benchmark of agreement: what it removes from routing, and what it counts."""

import doctest

import agreement
import model_pictures
import numpy as np

from keras_capsule_poe import CapsulePoE


def test_examples():
    for module in (agreement, model_pictures):
        assert doctest.testmod(module, extraglobs={"np": np}).failed == 0


def test_a_layer_without_agreement_keeps_competition_and_load_balancing():
    """Rejects a copy with uniform coefficients, with new weights, or without the routing bias."""
    random = np.random.default_rng(0)
    x = random.normal(size=(4, 6, 3)).astype("float32")
    layer = CapsulePoE(
        5, 2, softmax_over="outputs", agreement_scale=3.0, activation_prior_weight=0.5,
        routing_iterations=2, use_routing_bias=True, coefficient_sum=1.0,
    )  # fmt: skip
    layer(x)
    layer.kernel.assign(random.normal(size=layer.kernel.shape))
    layer.routing_bias.assign(random.normal(size=5))
    c, z = agreement.without(layer).route(x)
    bias = np.asarray(layer.routing_bias, "float64")
    first = np.exp(bias) / np.exp(bias).sum()
    votes = np.einsum("ijed,bid->bije", layer.kernel, x)
    squares = np.square(np.einsum("j,bije->bje", first, votes)).sum(axis=-1)
    powers = squares**0.5 * np.exp(bias)
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(c, np.broadcast_to(expected[:, None], c.shape), rtol=1e-4)
    np.testing.assert_allclose(z, np.einsum("bj,bije->bje", expected, votes), rtol=1e-3)
    assert np.abs(layer.route(x).coefficients - np.asarray(c)).max() > 0.01
