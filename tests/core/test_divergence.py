"""The hand-derived updates against autodiff and loops in NumPy float64."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_capsule_poe.functions import (
    BlockMaps,
    CapsuleUnits,
    EinsumMaps,
    Router,
    RoutingOptions,
    contrastive_divergence,
    decoder_rule,
    free_energy,
    squash,
)

B, I, J, D, E = 4, 5, 3, 2, 4
IMPLEMENTATIONS = ("reference", "fused")
MAPS = {"reference": EinsumMaps, "fused": BlockMaps}


def problem(seed=0):
    """Primary capsules x, prediction maps, coefficients and unsquashed outputs, float64."""
    random = np.random.default_rng(seed)
    x = np.asarray(squash(random.normal(size=(B, I, D))))
    w = random.normal(size=(I, J, E, D))
    c = random.uniform(0.1, 1.5, size=(B, I, J))
    return x, w, c, random.normal(size=(B, J, E))


def relative(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    return np.abs(got - expected).max() / np.abs(expected).max()


def squashed(z):
    n = np.linalg.norm(z)
    return n / (1 + n * n) * z


def pulled(z):
    return z / (1 + z @ z)


def encoder_loops(x, w, c):
    """Algorithm 1, one capsule at a time."""
    gradient = np.zeros_like(w)
    x_model = np.zeros_like(x)
    z, z_model = np.zeros((len(x), J, E)), np.zeros((len(x), J, E))
    for b in range(len(x)):
        for j in range(J):
            z[b, j] = sum(c[b, i, j] * w[i, j] @ x[b, i] for i in range(I))
        for i in range(I):
            back = sum(c[b, i, j] * w[i, j].T @ squashed(z[b, j]) for j in range(J))
            x_model[b, i] = squashed(back)
        for j in range(J):
            z_model[b, j] = sum(c[b, i, j] * w[i, j] @ x_model[b, i] for i in range(I))
        for i, j in itertools.product(range(I), range(J)):
            data = np.outer(pulled(z[b, j]), x[b, i])
            model = np.outer(pulled(z_model[b, j]), x_model[b, i])
            gradient[i, j] += 2 * c[b, i, j] * (data - model) / len(x)
    return gradient, x_model, z, z_model


def decoder_loops(x, z, u, e):
    """The decoder rule, one capsule at a time; I inputs x here are the experts."""
    gradient = np.zeros_like(u)
    x_model, z_model = np.zeros_like(x), np.zeros_like(z)
    for b in range(len(x)):
        for j in range(J):
            z_model[b, j] = sum(e[b, i, j] * u[i, j] @ x[b, i] for i in range(I))
        for i in range(I):
            x_model[b, i] = squashed(sum(e[b, i, j] * u[i, j].T @ z_model[b, j] for j in range(J)))
        for i, j in itertools.product(range(I), range(J)):
            data = np.outer(pulled(z[b, j]), x[b, i])
            model = np.outer(pulled(z_model[b, j]), x_model[b, i])
            gradient[i, j] += 2 * e[b, i, j] * (data - model) / len(x)
    return gradient, x_model, z, z_model


def correlation(w, c, z, x):
    """Mean over the images of c_ij score(z_j) x_i^T, from the library's units and maps."""
    return EinsumMaps(w).correlation(c, CapsuleUnits().score(z), x)[0] / len(x)


def log_probability(w, x, c):
    """Mean of -F, the coefficients held fixed; differentiable in w."""
    return -ops.mean(free_energy(ops.einsum("bij,ijed,bid->bje", c, w, x)))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_encoder_update_in_loops(implementation):
    x, w, c, _ = problem()
    got = contrastive_divergence(MAPS[implementation](w), x, c)
    for part, expected in zip(got[:4], encoder_loops(x, w, c), strict=True):
        # Sums of at most 20 products of order one, in another order.
        assert relative(part, expected) < 1e-13


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_decoder_update_in_loops(implementation):
    x, u, e, z = problem(1)
    got = decoder_rule(MAPS[implementation](u), x, z, e)
    for part, expected in zip(got[:4], decoder_loops(x, z, u, e), strict=True):
        assert relative(part, expected) < 1e-13  # as above


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("gain", [0.01, 1.0, 30.0])
def test_encoder_update_is_the_gradient_of_the_free_energy_difference(implementation, gain):
    x, w, c, _ = problem(2)
    w = gain * w
    got = contrastive_divergence(MAPS[implementation](w), x, c)
    x_model = tf.constant(np.asarray(got.reconstruction))  # frozen
    with tf.GradientTape() as tape:
        maps = tf.constant(w)
        tape.watch(maps)
        difference = log_probability(maps, x, c) - log_probability(maps, x_model, c)
    # Both are exact up to rounding, 2e-16 times a few dozen operations and some cancellation
    # between the two terms.
    assert relative(got.gradient, tape.gradient(difference, maps)) < 1e-10


def test_correlation_of_the_pull_is_equation_18():
    x, w, c, _ = problem(4)
    z = np.einsum("bij,ijed,bid->bje", c, w, x)
    expected = np.zeros_like(w)
    for b, i, j in itertools.product(range(B), range(I), range(J)):
        score = z[b, j] / (1 + np.sum(z[b, j] ** 2))
        expected[i, j] += 2 * c[b, i, j] * np.outer(score, x[b, i]) / B
    ours = correlation(w, c, z, x)
    with tf.GradientTape() as tape:
        maps = tf.constant(w)
        tape.watch(maps)
        value = log_probability(maps, x, c)
    # Rounding only, as above.
    assert relative(ours, expected) < 1e-13
    assert relative(ours, tape.gradient(value, maps)) < 1e-12


def test_backprojection_is_the_adjoint_of_the_collective():
    x, w, c, y = problem(5)
    z = np.einsum("bij,ijed,bid->bje", c, w, x)
    back = np.asarray(EinsumMaps(w).down(c, y))
    assert back.shape == x.shape
    # <y, A x> = <A^T y, x> per image.
    np.testing.assert_allclose(np.sum(y * z, (1, 2)), np.sum(back * x, (1, 2)), rtol=1e-12)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_decoder_update_is_the_slope_of_a_bilinear_form(implementation):
    """<score of z, U x> - <score of z~, U x~>, with all but U frozen."""
    x, u, e, z = problem(6)
    got = decoder_rule(MAPS[implementation](u), x, z, e)
    pulls = [np.asarray(CapsuleUnits().score(part)) for part in (got.z, got.z_model)]
    visible = x, np.asarray(got.reconstruction)
    with tf.GradientTape() as tape:
        maps = tf.constant(u)
        tape.watch(maps)
        data, model = (
            tf.einsum("bij,bje,ijed,bid->", e, score, maps, part) / B
            for score, part in zip(pulls, visible)
        )
        difference = data - model
    assert relative(got.gradient, tape.gradient(difference, maps)) < 1e-12  # rounding


@pytest.mark.parametrize("long, end", [(0.2, 0.2), (0.5, 0.5), (2.0, 0.5), (4.0, 0.25)])
def test_the_decoder_rule_settles_at_the_shorter_of_two_lengths_of_one_score(long, end):
    """z and z/|z|^2 have the same score: above |z| = 1 the rule decodes a wrong length."""
    x, z, e = np.array([[[0.6]]]), np.array([[[long]]]), np.ones((1, 1, 1))
    for start in (0.01, (1 + 1 / end) / 2):
        u = np.reshape(start / 0.6, (1, 1, 1, 1))
        for _ in range(50):
            found = decoder_rule(EinsumMaps(u), x, z, e, conditional=True)
            u = u + 0.5 / 0.6**2 * np.asarray(found.gradient)
        np.testing.assert_allclose(0.6 * u, end, rtol=1e-6)


def test_the_decoder_update_is_not_the_gradient_of_any_scalar():
    """Its Jacobian is not symmetric, as that of a gradient would be."""
    random = np.random.default_rng(8)
    x = np.asarray(squash(random.normal(size=(1, 2, 2))))
    u, e = random.normal(size=(2, 2, 1, 2)), random.uniform(0.5, 1.5, size=(1, 2, 2))
    z = random.normal(size=(1, 2, 1))
    rows = []
    for index in np.ndindex(u.shape):
        move = np.zeros_like(u)
        move[index] = 1e-5
        ends = [
            np.asarray(decoder_rule(EinsumMaps(u + s * move), x, z, e).gradient) for s in (1, -1)
        ]
        rows.append(((ends[0] - ends[1]) / 2e-5).ravel())
    jacobian = np.array(rows)
    # Far above the 1e-9 of finite differences.
    assert np.abs(jacobian - jacobian.T).max() > 1e-2 * np.abs(jacobian).max()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_no_update_where_the_model_reproduces_the_data(implementation):
    form = MAPS[implementation]
    x = np.array([[[0.3, 0.4]]])
    c = np.ones((1, 1, 1))
    # Encoder: w such that squash(w squash(w x)) = x, by bisection; it grows with w.
    low, high = 0.0, 10.0
    for _ in range(100):
        w = (low + high) / 2
        low, high = (w, high) if squashed(w * squashed(w * 0.5 * np.ones(1)))[0] < 0.5 else (low, w)
    at = contrastive_divergence(form(w * np.eye(2)[None, None]), x, c)
    np.testing.assert_allclose(at.reconstruction, x, atol=1e-14)
    assert np.abs(at.gradient).max() < 1e-14
    off = contrastive_divergence(form(0.5 * w * np.eye(2)[None, None]), x, c)
    assert np.abs(off.gradient).max() > 1e-2
    # Decoder: squash(u^2 x) = x where u^2 = sqrt(|x|/(1-|x|))/|x| = 2.
    u = np.sqrt(2.0)
    at = decoder_rule(form(u * np.eye(2)[None, None]), x, u * x, c)
    np.testing.assert_allclose(at.reconstruction, x, atol=1e-14)
    assert np.abs(at.gradient).max() < 1e-14


def steps(implementation, x, w, c, z):
    maps = MAPS[implementation](w)
    return contrastive_divergence(maps, x, c)[:4], decoder_rule(maps, x, z, c)[:4]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_order_of_the_batch_does_not_matter(implementation, dtype):
    x, w, c, z = (part.astype(dtype) for part in problem(9))
    order = np.array([2, 0, 3, 1])
    straight = steps(implementation, x, w, c, z)
    permuted = steps(implementation, x[order], w, c[order], z[order])
    # Another order of a sum of four: a few units in the last place.
    tolerance = {"float32": 1e-5, "float64": 1e-13}[dtype]
    for one, other in zip(straight, permuted):
        assert relative(other[0], one[0]) < tolerance
        for a, b in zip(other[1:], one[1:]):
            assert relative(a, np.asarray(b)[order]) < tolerance


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("softmax_over", ["inputs", "outputs"])
def test_routing_and_update_in_one_call(implementation, softmax_over):
    x, w, _, z = problem(12)
    maps = MAPS[implementation](w)
    options = RoutingOptions(
        softmax_over=softmax_over,
        routing_iterations=3,
        activation_prior_weight=0.5,
        coefficient_sum=3.0,
    )
    c = np.asarray(Router(EinsumMaps(w), options).route(x).coefficients)
    router = Router(maps, options)
    encoder, decoder = (
        contrastive_divergence(maps, x, routing=router),
        decoder_rule(maps, x, z, routing=router),
    )
    for got, expected in ((encoder, encoder_loops(x, w, c)), (decoder, decoder_loops(x, z, w, c))):
        for part, value in zip(got[:4], expected, strict=True):
            assert relative(part, value) < 1e-12  # two softmaxes more


def reference_divergence(kernel, x, c, cd_steps=1):
    """Return gradient and reconstruction of Algorithm 1, with einsum and fixed coefficients c."""
    # Shapes: kernel W (I, J, E, D), visible capsules x (B, I, D), coefficients c (B, I, J).

    def up(x):  # z_j = sum_i c_ij W_ij x_i
        return ops.einsum("bij,ijed,bid->bje", c, kernel, x)

    def down(y):  # x~_i = squash(sum_j c_ij W_ij^T y_j)
        return squash(ops.einsum("bij,ijed,bje->bid", c, kernel, y))

    def correlation(z, x):  # mean over images of c_ij s(z_j) x_i^T, with s(z) = 2 z/(1 + |z|^2)
        score = 2 * z / (1 + ops.sum(ops.square(z), axis=-1, keepdims=True))
        return ops.einsum("bij,bje,bid->ijed", c, score, x) / ops.shape(x)[0]

    x_model = x
    for _ in range(cd_steps):  # the paper's step: means instead of samples, as no p(x | z) is known
        x_model = down(squash(up(x_model)))
    # The gradient raises log P at the data and lowers it at the end of the chain.
    return correlation(up(x), x) - correlation(up(x_model), x_model), x_model


@pytest.mark.parametrize("implementation", sorted(MAPS))
@pytest.mark.parametrize("cd_steps", [1, 2, 3])
@pytest.mark.parametrize("images", [1, 7])
def test_it_is_the_reference_implementation(implementation, cd_steps, images):
    random = np.random.default_rng(0)
    w, x = random.normal(size=(6, 5, 3, 4)), random.uniform(-0.4, 0.4, size=(images, 6, 4))
    c = random.uniform(size=(images, 6, 5))
    gradient, reconstruction = reference_divergence(w, x, c, cd_steps)
    got = contrastive_divergence(MAPS[implementation](w), x, c, cd_steps=cd_steps)
    np.testing.assert_allclose(got.gradient, gradient, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(got.reconstruction, reconstruction, rtol=1e-8, atol=1e-12)
    shared = contrastive_divergence(MAPS[implementation](w), x, c[0], cd_steps=cd_steps)
    same = reference_divergence(w, x, np.broadcast_to(c[0], c.shape), cd_steps)[0]
    np.testing.assert_allclose(shared.gradient, same, rtol=1e-8, atol=1e-12)
    # One step more is another gradient.
    more = reference_divergence(w, x, c, cd_steps + 1)[0]
    assert np.abs(np.asarray(more) - np.asarray(gradient)).max() > 1e-4
