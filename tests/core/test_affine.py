"""Affine capsules, z_j = b_j + sum_i c_ij W_ij x_i: gradients, evenness, routing, log Z.

Wrong versions that must be seen: a bias that routing does not see, one that is decayed, added
twice, missing at the chain's end, of half the gradient.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from theory.importance import importance_gradient
from theory.partition import exact_log_partition
from theory.retrieval import lyapunov

from keras_capsule_poe.core.mcmc import expert_log_weight
from keras_capsule_poe.functions import (
    BinaryUnits,
    BlockMaps,
    CapsuleUnits,
    EinsumMaps,
    GaussianUnits,
    Router,
    RoutingOptions,
    chain_step,
    contrastive_divergence,
    decoder_rule,
    free_energy,
    route,
    squash,
)

B, I, J, D, E = 4, 5, 3, 2, 4
FORMS = pytest.mark.parametrize("form", [EinsumMaps, BlockMaps])
UNITS = pytest.mark.parametrize("units", [CapsuleUnits(), BinaryUnits(), GaussianUnits()])


def problem(seed=0):
    """x, maps, coefficients, biases of the experts, and unsquashed experts, float64."""
    random = np.random.default_rng(seed)
    x = np.asarray(squash(random.normal(size=(B, I, D))))
    w, c = random.normal(size=(I, J, E, D)), random.uniform(0.1, 1.5, size=(B, I, J))
    return x, w, c, random.normal(size=(J, E)), random.normal(size=(B, J, E))


def relative(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    return np.abs(got - expected).max() / np.abs(expected).max()


def log_probability(w, b, x, c, units):
    """Mean of -F, the coefficients held fixed."""
    return -ops.mean(free_energy(b + ops.einsum("bij,ijed,bid->bje", c, w, x), units))


@FORMS
@UNITS
def test_the_update_is_the_slope_of_the_free_energies_difference(form, units):
    x, w, c, b, _ = problem()
    got = contrastive_divergence(form(w), x, c, hidden=units, visible=CapsuleUnits(), hidden_bias=b)
    end = tf.constant(np.asarray(got.reconstruction))
    with tf.GradientTape() as tape:
        maps, bias = tf.constant(w), tf.constant(b)
        tape.watch([maps, bias])
        difference = log_probability(maps, bias, x, c, units)
        difference -= log_probability(maps, bias, end, c, units)
    # Rounding, of some cancellation between the two terms.
    slopes = tape.gradient(difference, [maps, bias])
    assert relative(got.gradient, slopes[0]) < 1e-11
    assert relative(got.hidden_bias, slopes[1]) < 1e-11


ROUTING = {"routing_iterations": 4, "agreement_scale": 2.0, "softmax_over": "outputs"}
ROUTING["activation_prior_weight"] = 0.5


def routed_by_hand(x, w, b, agreement_scale, prior, sees=True):
    """Three updates of routing over the outputs, one image, one pair at a time."""
    votes = np.einsum("ijed,id->ije", w, x)
    own = b if sees else 0 * b
    logits, c = np.zeros((I, J)), np.full((I, J), 1 / J)
    for _ in range(3):
        z = own + np.einsum("ij,ije->je", c, votes)
        for i, j in itertools.product(range(I), range(J)):
            cosine = votes[i, j] @ z[j] / np.linalg.norm(votes[i, j]) / np.linalg.norm(z[j])
            logits[i, j] += agreement_scale * cosine
        powers = np.exp(logits + prior * 2 * np.log(np.linalg.norm(z, axis=-1)))
        c = powers / powers.sum(axis=1, keepdims=True)
    return c, b + np.einsum("ij,ije->je", c, votes)


@FORMS
def test_routing_sees_the_bias(form):
    x, w, _, b, _ = problem(1)
    options = RoutingOptions(**ROUTING)
    c, z = Router(form(w), options, hidden_bias=b).route(x)
    for image in range(B):
        expected = routed_by_hand(x[image], w, b, 2.0, 0.5)
        assert relative(c[image], expected[0]) < 1e-12
        assert relative(z[image], expected[1]) < 1e-12
        blind = routed_by_hand(x[image], w, b, 2.0, 0.5, sees=False)
        assert relative(c[image], blind[0]) > 0.01
    # Algorithm 1 at that routing, and the bias counts once.
    maps = form(w)
    got = contrastive_divergence(maps, x, routing=Router(maps, options, hidden_bias=b))
    same = contrastive_divergence(EinsumMaps(w), x, c, hidden_bias=b)
    for one, other in zip(got[:5], same[:5]):
        assert relative(one, other) < 1e-12
    assert relative(got.z, z) < 1e-12
    step = chain_step(maps, x, routing=Router(maps, options, hidden_bias=b))
    assert relative(step, same.reconstruction) < 1e-12


def test_one_bias_only():
    x, w, _, b, _ = problem()
    maps = EinsumMaps(w)
    router = Router(maps, RoutingOptions(), hidden_bias=b)
    with pytest.raises(ValueError, match="`hidden_bias` must be None beside a Router.*Received"):
        contrastive_divergence(maps, x, routing=router, hidden_bias=b)
    with pytest.raises(ValueError, match="`hidden_bias` must be None beside a Router.*Received"):
        expert_log_weight(w, router, hidden_bias=b)


@FORMS
@pytest.mark.parametrize("conditional", [False, True])
def test_the_decoder_rule_moves_its_bias(form, conditional):
    x, u, _, b, z = problem(2)
    maps = form(u)
    router = Router(
        maps, RoutingOptions(routing_iterations=3, softmax_over="inputs"), hidden_bias=b
    )
    got = decoder_rule(maps, x, z, routing=router, conditional=conditional)
    e, decoded = Router(EinsumMaps(u), RoutingOptions(routing_iterations=3), hidden_bias=b).route(x)
    assert relative(got.z_model, decoded) < 1e-12
    score = CapsuleUnits().score
    expected = np.mean(np.asarray(score(z)) - np.asarray(score(decoded)), axis=0)
    assert relative(got.hidden_bias, expected) < 1e-12
    # The maps' gradient is that of the same z~ without a bias of its own.
    back = np.einsum("bij,bje,ijed->bid", e, np.asarray(decoded), u)
    end = x if conditional else np.asarray(squash(back))
    data, model = (
        np.einsum("bij,bje,bid->ijed", e, np.asarray(score(part)), y) / B
        for part, y in ((z, x), (decoded, end))
    )
    assert relative(got.gradient, data - model) < 1e-12


@pytest.mark.some(3)
@pytest.mark.parametrize("agreement", ["cosine", "dot"])
@pytest.mark.parametrize(
    "softmax_over, iterations", [("inputs", 3), ("outputs", 4), ("outputs", 1)]
)
@pytest.mark.parametrize("sizes", [(4, 12, 3, 8, 16), (3, 4, 11, 6, 5)])
def test_gradients_through_routing_in_both_forms(agreement, softmax_over, iterations, sizes):
    images, i, j, d, e = sizes
    random = np.random.default_rng(3)
    x = tf.constant(squash(random.normal(size=(images, i, d))))
    w, b = (
        tf.constant(0.5 * random.normal(size=(i, j, e, d))),
        tf.constant(random.normal(size=(j, e))),
    )
    options = dict(
        routing_iterations=iterations,
        softmax_over=softmax_over,
        agreement=agreement,
        activation_prior_weight=0.3,
    )
    bias, weights = tf.constant(random.normal(size=j)), random.normal(size=(images, j, e))
    found = []
    for streamed in (False, True):
        with tf.GradientTape() as tape:
            tape.watch([x, w, b, bias])
            if streamed:
                c, z = route(x, w, bias, hidden_bias=b, **options)
            else:
                router = Router(EinsumMaps(w), RoutingOptions(**options), bias, hidden_bias=b)
                c, z = router.route(x)
            value = tf.reduce_sum(weights * z) + tf.reduce_sum(tf.sin(c))
        unconnected = tf.UnconnectedGradients.ZERO
        found.append(
            (c, z, *tape.gradient(value, [x, w, b, bias], unconnected_gradients=unconnected))
        )
    for plain, blocks in zip(*found):
        # Rounding through up to three softmaxes; a gradient may be nought.
        np.testing.assert_allclose(blocks, plain, rtol=1e-9, atol=1e-11)


@FORMS
def test_evenness_and_the_sign_of_an_expert(form):
    """Without a bias both signs are a gauge, to the last bit; with it neither is."""
    x, w, _, b, _ = problem(4)
    options = RoutingOptions(**ROUTING)

    def energy(x, w, b):
        return np.asarray(free_energy(Router(form(w), options, hidden_bias=b).route(x).z))

    flipped = w * np.array([1, -1, 1])[:, None, None]
    turned = b * np.array([1, -1, 1])[:, None]
    assert np.array_equal(energy(-x, w, None), energy(x, w, None))
    assert np.array_equal(energy(x, flipped, None), energy(x, w, None))
    assert np.abs(energy(-x, w, b) - energy(x, w, b)).min() > 1e-3
    assert np.abs(energy(x, flipped, b) - energy(x, w, b)).min() > 1e-3
    # What is left of the gauge takes the bias along.
    assert np.array_equal(energy(x, flipped, turned), energy(x, w, b))
    assert np.array_equal(energy(-x, w, -b), energy(x, w, b))


VALUES = np.array([[0.0, 0.4], [0.7, -0.2], [-0.3, -0.6]])


def enumerated(w, c, b):
    """All 3^I states, and minus their free energies, one term at a time."""
    states = np.array(list(itertools.product(VALUES, repeat=I)))
    z = b + np.einsum("ij,ijed,nid->nje", c, w, states, optimize=True)
    return states, np.log1p(np.square(z).sum(axis=-1)).sum(axis=-1)


def test_log_z_and_the_likelihood_s_gradient_by_enumeration():
    x, w, c, b, _ = problem(5)
    c, data = c[0], VALUES[np.random.default_rng(0).integers(3, size=(B, I))]
    states, logs = enumerated(w, c, b)
    log_z = np.log(np.exp(logs).sum())
    assert exact_log_partition(w, c, VALUES, hidden_bias=b) == pytest.approx(log_z, abs=1e-11)
    assert abs(exact_log_partition(w, c, VALUES) - log_z) > 0.1
    np.testing.assert_allclose(expert_log_weight(w, c, hidden_bias=b)(states), logs, atol=1e-12)

    def likelihood(b):
        own = np.asarray(expert_log_weight(w, c, hidden_bias=b)(data))
        return own.mean() - exact_log_partition(w, c, VALUES, hidden_bias=b)

    slope, h = np.zeros_like(b), 1e-3
    for index in np.ndindex(b.shape):
        move = np.zeros_like(b)
        move[index] = h
        once, twice = (
            (likelihood(b + k * move) - likelihood(b - k * move)) / (2 * k * h) for k in (1, 2)
        )
        slope[index] = (4 * once - twice) / 3
    # All states, once each, are the base itself. Fourth order in h.
    for form in (EinsumMaps, BlockMaps):
        whole = importance_gradient(form(w), data, states, c, hidden_bias=b)
        np.testing.assert_allclose(whole.hidden_bias, slope, atol=1e-9)
    assert np.abs(slope).max() > 0.1


def test_the_chain_of_affine_capsules_climbs_too():
    x, w, c, b, _ = problem(6)
    maps = EinsumMaps(w)
    values = []
    for _ in range(30):
        values.append(np.asarray(lyapunov(maps, x, c, b)))
        x = np.asarray(chain_step(maps, x, c, hidden_bias=b))
    assert np.diff(values, axis=0).min() > -1e-12 and np.ptp(values) > 0.1
