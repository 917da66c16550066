"""Routing against a loop over images, inputs and outputs in NumPy float64."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_capsule_poe.functions import (
    BlockMaps,
    EinsumMaps,
    Router,
    RoutingOptions,
    direction,
    route,
    squash,
)

B, I, J, D, E = 3, 5, 4, 3, 2
IMPLEMENTATIONS = ("reference", "fused")
NORMALIZE = ("inputs", "outputs")
KINDS = ("cosine", "dot")
# Float64 sums of at most 60 terms of order one, in another order, through five softmaxes.
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


def problem(seed=0, shape=(B, I, J, D, E), gain=1.0):
    """Input capsules (B, I, D) of lengths below one and maps (I, J, E, D)."""
    b, i, j, d, e = shape
    random = np.random.default_rng(seed)
    x = random.normal(size=(b, i, d))
    x *= random.uniform(0.1, 0.9, (b, i, 1)) / np.linalg.norm(x, axis=-1, keepdims=True)
    return x, gain * random.normal(size=(i, j, e, d))


def routed(implementation, x, w, bias=None, **options):
    """Routing by the streamed form or by the readable one."""
    if implementation == "fused":
        return route(x, w, bias, **options)
    return Router(EinsumMaps(w), RoutingOptions(**options), bias).route(x)


def squashed(z):
    n = np.sqrt(np.sum(z * z))
    return n * n / (1 + n * n) * z / n


def reference(
    x,
    w,
    routing_iterations=4,
    agreement_scale=1.0,
    softmax_over="inputs",
    agreement="cosine",
    activation_prior_weight=0.0,
    bias=None,
    coefficient_sum=1.0,
):
    """Routing as it is written down, one number at a time."""
    all_c, all_z = [], []
    for image in x:
        inputs, outputs = w.shape[:2]
        vote = [[w[i, j] @ image[i] for j in range(outputs)] for i in range(inputs)]
        agreed = np.zeros((inputs, outputs))
        prior = np.zeros(outputs)
        for iteration in range(routing_iterations):
            c = np.zeros((inputs, outputs))
            for i, j in itertools.product(range(inputs), range(outputs)):
                c[i, j] = np.exp(agreed[i, j] + prior[j] + (0 if bias is None else bias[j]))
            if softmax_over == "inputs":
                for j in range(outputs):
                    c[:, j] = coefficient_sum * c[:, j] / sum(c[:, j])
            else:
                for i in range(inputs):
                    c[i] = coefficient_sum * c[i] / sum(c[i])
            z = [sum(c[i, j] * vote[i][j] for i in range(inputs)) for j in range(outputs)]
            if iteration == routing_iterations - 1:
                break
            for i, j in itertools.product(range(inputs), range(outputs)):
                v = vote[i][j]
                if agreement == "cosine":
                    a = v @ z[j] / np.sqrt((v @ v) * (z[j] @ z[j]))
                else:
                    a = v @ squashed(z[j])
                agreed[i, j] += agreement_scale * a
            prior = np.array(
                [activation_prior_weight * np.log(z[j] @ z[j]) for j in range(outputs)]
            )
        all_c.append(c)
        all_z.append(z)
    return np.array(all_c), np.array(all_z)


def assert_routes_like(expected, got):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, **CLOSE)


@pytest.mark.parametrize("softmax_over", NORMALIZE)
@pytest.mark.parametrize("kind", KINDS)
def test_iterations(kind, softmax_over):
    x, w = problem()
    for n in range(1, 7):
        options = {"routing_iterations": n, "softmax_over": softmax_over, "agreement": kind}
        expected = reference(x, w, **options)
        for implementation in IMPLEMENTATIONS:
            assert_routes_like(expected, routed(implementation, x, w, **options))


OPTIONS = [
    {"agreement_scale": 5.0},
    {"agreement_scale": 0.01},
    {"coefficient_sum": 7.0},
    {"activation_prior_weight": 0.8},
    {"bias": np.array([0.5, -1.0, 2.0, 0.0])},
    {
        "agreement_scale": 2.0,
        "coefficient_sum": 5.0,
        "activation_prior_weight": 0.3,
        "bias": np.array([-0.5, 1.0, 0.0, 0.3]),
    },
]


@pytest.mark.parametrize("more", OPTIONS, ids=lambda o: "-".join(o))
def test_options(more):
    x, w = problem(seed=1)
    for softmax_over, kind, n in itertools.product(NORMALIZE, KINDS, (1, 3)):
        options = {"routing_iterations": n, "softmax_over": softmax_over, "agreement": kind}
        expected = reference(x, w, **options, **more)
        for implementation in IMPLEMENTATIONS:
            assert_routes_like(expected, routed(implementation, x, w, **options, **more))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "shape", [(2, 1, 4, 3, 2), (2, 5, 1, 3, 2), (1, 2, 6, 1, 1), (1, 9, 2, 1, 3)]
)
def test_sizes(implementation, shape):
    x, w = problem(seed=2, shape=shape)
    for softmax_over in NORMALIZE:
        options = {
            "routing_iterations": 3,
            "softmax_over": softmax_over,
            "activation_prior_weight": 0.4,
        }
        got = routed(implementation, x, w, **options)
        assert_routes_like(reference(x, w, **options), got)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("softmax_over", NORMALIZE)
def test_permutation_equivariance(implementation, kind, softmax_over):
    x, w = problem(seed=3)
    bias = np.array([0.1, 0.7, -0.4, 0.0])
    form = functools.partial(routed, implementation)
    options = {
        "softmax_over": softmax_over,
        "agreement": kind,
        "activation_prior_weight": 0.5,
        "agreement_scale": 3.0,
    }
    c, z = (np.asarray(part) for part in form(x, w, bias=bias, **options))

    order = np.random.default_rng(0).permutation(I)
    assert_routes_like((c[:, order], z), form(x[:, order], w[order], bias=bias, **options))
    order = np.array([2, 0, 3, 1])
    permuted = form(x, w[:, order], bias=bias[order], **options)
    assert_routes_like((c[:, :, order], z[:, order]), permuted)
    order = np.array([2, 0, 1])
    assert_routes_like((c[order], z[order]), form(x[order], w, bias=bias, **options))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("softmax_over, axis", [("inputs", 1), ("outputs", 2)])
def test_coefficients_are_positive_and_sum_to_scale(implementation, softmax_over, axis):
    x, w = problem(seed=4)
    c = routed(
        implementation,
        x,
        w,
        softmax_over=softmax_over,
        coefficient_sum=6.0,
        agreement_scale=4.0,
        activation_prior_weight=0.5,
    )[0]
    c = np.asarray(c)
    assert c.min() > 0
    # A sum of at most five rounded shares.
    np.testing.assert_allclose(c.sum(axis=axis), 6.0, rtol=1e-14)
    assert np.abs(c.sum(axis=3 - axis) - c.sum(axis=3 - axis).mean()).max() > 0.1


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_prior_and_bias_cancel_when_inputs_are_normalised(implementation):
    x, w = problem(seed=5)
    form = functools.partial(routed, implementation)
    bias = np.array([3.0, -2.0, 0.0, 1.0])
    bare = [np.asarray(part) for part in form(x, w, softmax_over="inputs")]
    assert_routes_like(
        bare, form(x, w, softmax_over="inputs", activation_prior_weight=2.0, bias=bias)
    )
    changed = form(x, w, softmax_over="outputs", activation_prior_weight=2.0, bias=bias)
    assert np.abs(changed.z - form(x, w, softmax_over="outputs").z).max() > 0.1


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("softmax_over", NORMALIZE)
def test_scale_is_a_unit_of_the_maps(implementation, softmax_over):
    x, w = problem(seed=6)
    form = functools.partial(routed, implementation)
    one, other = (
        form(x, w * 9.0, softmax_over=softmax_over),
        form(x, w, softmax_over=softmax_over, coefficient_sum=9.0),
    )
    np.testing.assert_allclose(one.z, other.z, **CLOSE)
    np.testing.assert_allclose(9 * one.coefficients, other.coefficients, **CLOSE)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_returned_collectives_are_those_of_the_returned_coefficients(implementation):
    x, w = problem(seed=7)
    c, z = routed(implementation, x, w, agreement="dot", softmax_over="outputs")
    expected = np.einsum("bij,ijed,bid->bje", np.asarray(c), w, x)
    np.testing.assert_allclose(z, expected, **CLOSE)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_input_that_disagrees_loses(implementation, kind):
    """Three votes point one way and the fourth against them; the other output sees no conflict."""
    x = np.full((1, 4, 1), 0.9)
    w = np.full((4, 2, 2, 1), [[1.0], [0.5]])
    w[3, 0] *= -1.0
    form = functools.partial(routed, implementation)
    shares = [
        np.asarray(
            form(x, w, routing_iterations=n, agreement=kind, softmax_over="outputs").coefficients
        )[0, :, 0]
        for n in range(1, 6)
    ]
    assert np.array_equal(shares[0], np.full(4, 0.5))
    assert np.all(np.diff([share[3] for share in shares]) < 0)
    assert shares[-1][3] < shares[-1][0] - 0.1


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("softmax_over", NORMALIZE)
def test_backpropagation_through_routing_matches_finite_differences(
    implementation, kind, softmax_over
):
    x, w = problem(seed=8)
    random = np.random.default_rng(9)
    weight = random.normal(size=(B, J, E))
    steps = random.normal(size=x.shape), random.normal(size=w.shape)
    form = functools.partial(routed, implementation)

    options = {"routing_iterations": 3, "agreement_scale": 1.5, "activation_prior_weight": 0.6}

    def value(x, w):
        return ops.sum(weight * form(x, w, softmax_over=softmax_over, agreement=kind, **options).z)

    with tf.GradientTape() as tape:
        tensors = tf.constant(x), tf.constant(w)
        tape.watch(tensors)
        total = value(*tensors)
    gradients = tape.gradient(total, tensors)
    slope = sum(np.sum(np.asarray(g) * s) for g, s in zip(gradients, steps))
    h = 1e-5
    ends = [float(value(x + s * h * steps[0], w + s * h * steps[1])) for s in (1, -1)]
    # Central differences: h^2 = 1e-10 times third derivatives of order 100.
    assert abs(slope - (ends[0] - ends[1]) / (2 * h)) < 1e-6 * max(1, abs(slope))


def test_votes_collective_and_agreement_in_loops():
    x, w = problem(seed=10)
    maps = EinsumMaps(w)
    predictions = np.asarray(maps.votes(x))
    random = np.random.default_rng(11)
    c, z = random.uniform(size=(B, I, J)), random.normal(size=(B, J, E))
    sums = np.asarray(maps.up(c, x))
    cosine, dot = (
        np.asarray(agreement.of(agreement.measure(x), towards(z)))
        for agreement, towards in zip(map(maps.agreements, KINDS), (direction, squash))
    )
    for b, j in itertools.product(range(B), range(J)):
        total = np.zeros(E)
        for i in range(I):
            v = w[i, j] @ x[b, i]
            total += c[b, i, j] * v
            np.testing.assert_allclose(predictions[b, i, j], v, **CLOSE)
            norms = np.linalg.norm(v) * np.linalg.norm(z[b, j])
            np.testing.assert_allclose(cosine[b, i, j], v @ z[b, j] / norms, **CLOSE)
            np.testing.assert_allclose(dot[b, i, j], v @ squashed(z[b, j]), **CLOSE)
        np.testing.assert_allclose(sums[b, j], total, **CLOSE)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "options, message",
    [
        ({"routing_iterations": 0}, r"`routing_iterations`.*Received: routing_iterations=0"),
        ({"routing_iterations": 2.5}, r"`routing_iterations`.*Received: routing_iterations=2.5"),
        (
            {"softmax_over": "both"},
            r"`softmax_over`.*'inputs'.*'outputs'.*Received: softmax_over='both'",
        ),
        ({"agreement": "angle"}, r"`agreement`.*'cosine'.*'dot'.*Received: agreement='angle'"),
    ],
)
def test_bad_options_are_refused(implementation, options, message):
    x, w = problem()
    with pytest.raises(ValueError, match=message):
        routed(implementation, x, w, **options)


@pytest.mark.parametrize("softmax_over", NORMALIZE)
def test_a_mean_coefficient_of_one(softmax_over):
    x, w = problem()
    for implementation in IMPLEMENTATIONS:
        c = routed(
            implementation, x, w, softmax_over=softmax_over, coefficient_sum="mean"
        ).coefficients
        # One sum of at most five rounded shares.
        np.testing.assert_allclose(np.sum(c, axis=(1, 2)), I * J)


@pytest.mark.parametrize("name", ["agreement_scale", "coefficient_sum", "activation_prior_weight"])
def test_numbers_without_meaning_are_refused(name):
    below = () if name == "activation_prior_weight" else (0, -1.0)
    for value in (True, float("nan"), float("inf"), "two", None, *below):
        with pytest.raises(ValueError, match=rf"`{name}` must be .*Received: {name}="):
            RoutingOptions(**{name: value})


def test_numpy_numbers_are_taken():
    options = RoutingOptions(
        routing_iterations=np.int64(3), agreement_scale=np.float32(2), coefficient_sum=np.int32(3)
    )
    assert options == RoutingOptions(routing_iterations=3, agreement_scale=2.0, coefficient_sum=3.0)
    assert type(options.routing_iterations) is int and type(options.coefficient_sum) is float


def test_the_same_sums_by_blocks_and_by_einsum():
    """Every verb of the maps, in both of the blocks' layouts."""
    for shape in ((B, 9, J, D, 8), (B, J, 9, 8, D)):
        x, w = problem(seed=12, shape=shape)
        random = np.random.default_rng(13)
        c = random.uniform(size=(B, *w.shape[:2]))
        y = random.normal(size=(B, *w.shape[1:3]))
        found = []
        for maps in (EinsumMaps(w), BlockMaps(w)):
            laid = maps.lay_pairs(c), maps.lay_inputs(x), maps.lay_outputs(y)
            found.append(
                (
                    maps.unlay_outputs(maps.up(*laid[:2])),
                    maps.unlay_inputs(maps.down(laid[0], laid[2])),
                    maps.unlay_maps(maps.correlation(laid[0], laid[2], laid[1])),
                    maps.unlay_outputs(maps.equal_up(laid[1])),
                )
            )
        for one, other in zip(*found):
            np.testing.assert_allclose(one, other, **CLOSE)
