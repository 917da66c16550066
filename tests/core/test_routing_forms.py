"""Leaky, replaced, projected, shared and self-attention routing, against NumPy in float64.

`numpy_routing` is written from the papers, over votes that are all held. Rejected by it: a softmax
over the inputs where it should be over the outputs, or one over all pairs; a leak that stays in
the coefficients, or whose logit is not zero; logits that add up where they should be replaced; an
agreement with z and not with its direction; a bias that routing does not see, or that comes after
it; in attention a bias inside the softmax, or no division by sqrt(E).
"""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_capsule_poe.core.fused import blocks
from keras_capsule_poe.core.fused import shared_maps as shared
from keras_capsule_poe.functions import (
    EinsumMaps,
    Router,
    RoutingOptions,
    SelfAttention,
    attend,
    exponential_squash,
    route,
)

B, I, J, D, E = 3, 7, 4, 5, 6
# Float64 sums of at most 60 terms of order one, in another order, through three softmaxes.
CLOSE = {"rtol": 1e-11, "atol": 1e-12}
FORMS = [
    dict(zip(("agreement", "leaky", "logits"), values))
    for values in itertools.product(
        ("cosine", "dot", "projection"), (False, True), ("accumulated", "replaced")
    )
]


# Each kind of agreement, leaking or not, and each kind of logits, once at least.
LEARNED = [FORMS[0], FORMS[3], FORMS[6], FORMS[9]]


def problem(seed=0, inputs=I, is_shared=False, gain=0.6):
    random = np.random.default_rng(seed)
    maps = 1 if is_shared else inputs
    x = random.normal(size=(B, inputs, D))
    kernel = gain * random.normal(size=(maps, J, E, D))
    return x, kernel, random.normal(size=(J, E))


def numpy_routing(
    x, kernel, bias=0.0, routing_iterations=3, agreement="dot", leaky=False, logits=""
):
    kernel = np.broadcast_to(kernel, (x.shape[1], *kernel.shape[1:]))
    votes = np.einsum("bid,ijed->bije", x, kernel)
    b = np.zeros(votes.shape[:3])
    for iteration in range(routing_iterations):
        powers = np.exp(b)
        c = powers / (powers.sum(axis=2, keepdims=True) + (1.0 if leaky else 0.0))
        z = np.einsum("bij,bije->bje", c, votes) + bias
        n = np.linalg.norm(z, axis=-1, keepdims=True)
        if iteration == routing_iterations - 1:
            return c, z
        towards = n / (1 + n**2) * z if agreement == "dot" else z / n
        sizes = np.linalg.norm(votes, axis=-1) if agreement == "cosine" else 1.0
        a = np.einsum("bije,bje->bij", votes, towards) / sizes
        b = a if logits == "replaced" else b + a


def numpy_attention(x, kernel, bias):
    votes = np.einsum("bid,ijed->bije", x, kernel)
    logits = np.einsum("bije,bkje->bij", votes, votes) / np.sqrt(votes.shape[-1])
    powers = np.exp(logits - logits.max(axis=2, keepdims=True))
    c = powers / powers.sum(axis=2, keepdims=True) + bias
    return c, np.einsum("bij,bije->bje", c, votes)


def routed(form, x, kernel, hidden_bias=None, is_shared=False, **options):
    if form == "fused":
        return route(x, kernel, hidden_bias=hidden_bias, shared=is_shared, **options)
    kernel = ops.broadcast_to(kernel, (x.shape[1], *kernel.shape[1:]))
    maps = EinsumMaps(kernel)
    return Router(maps, RoutingOptions(**options), hidden_bias=hidden_bias).route(x)


def attended(form, x, kernel, bias):
    return attend(x, kernel, bias) if form == "fused" else (
        SelfAttention(EinsumMaps(kernel), bias).route(x)
    )  # fmt: skip


def assert_close(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, **CLOSE)


@pytest.mark.parametrize("options", FORMS, ids=lambda o: "-".join(map(str, o.values())))
def test_each_form_is_that_of_the_papers(options):
    for is_shared in (False, True):
        check_form(options, is_shared)


def check_form(options, is_shared):
    x, kernel, bias = problem(is_shared=is_shared)
    for iterations, own in ((1, None), (2, bias), (4, None)):
        more = {"softmax_over": "outputs", "routing_iterations": iterations, **options}
        expected = numpy_routing(
            x, kernel, 0.0 if own is None else own, routing_iterations=iterations, **options
        )
        for form in ("reference", "fused"):
            assert_close(routed(form, x, kernel, own, is_shared, **more), expected)
    shares = np.asarray(expected[0]).sum(axis=2)
    assert np.all(shares < 1) if options["leaky"] else np.allclose(shares, 1, rtol=1e-14)
    # What other softmaxes would have made sum to one.
    assert np.abs(expected[0].sum(axis=1) - 1).max() > 0.1


def test_self_attention_is_that_of_the_paper():
    for sizes in ((7, 4), (4, 7)):
        random = np.random.default_rng(1)
        inputs, outputs = sizes
        x, kernel = random.normal(size=(B, inputs, 5)), random.normal(size=(*sizes, 9, 5)) / 3
        bias = random.normal(size=sizes)
        expected = numpy_attention(x, kernel, bias)
        np.testing.assert_allclose((expected[0] - bias).sum(axis=2), 1, rtol=1e-14)
        for form in ("reference", "fused"):
            assert_close(attended(form, x, kernel, bias), expected)
        # Without a bias it is none of its own.
        assert_close(attend(x, kernel), numpy_attention(x, kernel, 0.0))


def slopes(function, arrays, weights):
    """Gradients of a weighted sum of the results in each array."""
    tensors = [tf.constant(array) for array in arrays]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        total = sum(ops.sum(part * w) for part, w in zip(function(*tensors), weights))
    return [np.asarray(gradient) for gradient in tape.gradient(total, tensors)]


def assert_slope(function, arrays, weights, gradients):
    """Gradients against a difference in one direction."""
    random, h = np.random.default_rng(4), 1e-5
    steps = [random.normal(size=array.shape) for array in arrays]

    def total(share):
        parts = function(*(a + share * d for a, d in zip(arrays, steps)))
        return sum(np.sum(np.asarray(part) * w) for part, w in zip(parts, weights))

    slope = sum(np.sum(a * b) for a, b in zip(gradients, steps))
    # h^2 = 1e-10 times third derivatives of order 1000, and rounding of sums of 100 over 1e-5.
    assert abs(slope - (total(h) - total(-h)) / (2 * h)) < 1e-6 * max(1, abs(slope))


def weights_of(seed=3):
    random = np.random.default_rng(seed)
    return random.normal(size=(B, I, J)), random.normal(size=(B, J, E))


@pytest.mark.parametrize("options", LEARNED, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("is_shared", [False, True], ids=["own", "shared"])
def test_the_gradient_by_hand_is_that_of_autodiff_and_of_differences(options, is_shared):
    arrays = problem(seed=2, is_shared=is_shared)
    options = {"softmax_over": "outputs", "routing_iterations": 3, **options}

    def value(form):
        return lambda x, w, b: routed(form, x, w, b, is_shared, **options)

    ours, plain = (slopes(value(form), arrays, weights_of()) for form in ("fused", "reference"))
    assert_close(ours, plain)
    assert_slope(value("fused"), arrays, weights_of(), ours)


@pytest.mark.parametrize("sizes", [(I, J), (J, I)])
def test_the_gradient_of_attention_by_hand_is_that_of_autodiff_and_of_differences(sizes):
    random = np.random.default_rng(5)
    arrays = [
        random.normal(size=(B, sizes[0], D)),
        0.5 * random.normal(size=(*sizes, 8, D)),
        random.normal(size=sizes),
    ]
    weights = random.normal(size=(B, *sizes)), random.normal(size=(B, sizes[1], 8))
    ours, plain = (
        slopes(lambda *a, form=form: attended(form, *a), arrays, weights)
        for form in ("fused", "reference")
    )
    assert_close(ours, plain)
    assert_slope(lambda *a: attended("fused", *a), arrays, weights, ours)


def test_the_numbers_have_gradients_where_routing_leaks():
    """The bias and the scale move the first coefficients, too, of which the leak has a share."""
    x, kernel, _ = problem(seed=6)
    numbers = [np.linspace(-1, 1, J), np.array(2.0), np.array(1.5), np.array(0.4)]

    def value(form):
        def of(bias, scale, temperature, prior):
            options = {
                "coefficient_sum": scale,
                "agreement_scale": temperature,
                "activation_prior_weight": prior,
            }
            options |= {
                "routing_iterations": 3,
                "softmax_over": "outputs",
                "leaky": True,
                "agreement": "dot",
            }
            if form == "fused":
                return route(x, kernel, bias, **options)
            return Router(EinsumMaps(kernel), RoutingOptions(**options), bias).route(x)

        return of

    ours, plain = (slopes(value(form), numbers, weights_of()) for form in ("fused", "reference"))
    assert_close(ours, plain)


def test_a_few_images_at_a_time_give_the_same_numbers(monkeypatch):
    x, kernel, bias = problem(seed=7, is_shared=True)
    own, share = problem(seed=7)[1], np.zeros((I, J))
    options = {"softmax_over": "outputs", "routing_iterations": 3, "agreement": "cosine"}

    def whole():
        found = slopes(
            lambda x, w, b: routed("fused", x, w, b, True, **options),
            (x, kernel, bias),
            weights_of(),
        )
        return found + slopes(lambda *a: attend(*a), (x, own, share), weights_of())

    expected = whole()
    for module in (blocks, shared):
        monkeypatch.setattr(module, "BLOCK", 100)
    assert_close(whole(), expected)


def test_inputs_of_shared_maps_may_be_any_number_and_in_any_order():
    x, kernel, _ = problem(seed=8, is_shared=True)
    options = {"softmax_over": "outputs", "routing_iterations": 3, "agreement": "projection"}
    call = tf.function(
        lambda x: route(x, kernel, shared=True, **options),
        input_signature=[tf.TensorSpec((None, None, D), "float64")],
        autograph=False,
    )
    for inputs in (1, 4, 7):
        expected = numpy_routing(x[:, :inputs], kernel, agreement="projection")
        assert_close(call(x[:, :inputs]), expected)
    order = np.random.default_rng(0).permutation(I)
    c, z = call(x)
    assert_close(call(x[:, order]), (np.asarray(c)[:, order], z))
    mean = route(
        x, kernel, shared=True, softmax_over="inputs", coefficient_sum="mean", routing_iterations=2
    )
    np.testing.assert_allclose(np.sum(mean.coefficients, axis=1), I, rtol=1e-12)


@pytest.mark.parametrize("is_shared", [False, True], ids=["own", "shared"])
def test_inputs_and_outputs_may_come_in_any_order(is_shared):
    """With their maps: every form, and attention; a bias goes with its output."""
    x, kernel, bias = problem(seed=9, is_shared=is_shared)
    random = np.random.default_rng(0)
    inputs, outputs = random.permutation(I), random.permutation(J)
    ordered = (kernel if is_shared else kernel[inputs])[:, outputs]
    for options in FORMS:
        options = {"softmax_over": "outputs", "routing_iterations": 3, **options}
        c, z = routed("fused", x, kernel, bias, is_shared, **options)
        found = routed("fused", x[:, inputs], ordered, bias[outputs], is_shared, **options)
        assert_close(found, (np.asarray(c)[:, inputs][:, :, outputs], np.asarray(z)[:, outputs]))
    if not is_shared:
        share = random.normal(size=(I, J))
        c, z = attend(x, kernel, share)
        found = attend(x[:, inputs], ordered, share[inputs][:, outputs])
        assert_close(found, (np.asarray(c)[:, inputs][:, :, outputs], np.asarray(z)[:, outputs]))


@pytest.mark.parametrize("form", ["reference", "fused"])
def test_zero_vectors_give_finite_numbers_and_slopes(form):
    x, kernel, bias = (np.zeros_like(array) for array in problem())
    for options in LEARNED:
        options = {"softmax_over": "outputs", "routing_iterations": 3, **options}
        c, z = routed(form, x, kernel, bias, **options)
        expected = 1 / (J + 1) if options["leaky"] else 1 / J
        np.testing.assert_allclose(c, expected, rtol=1e-12)
        assert not np.any(z)
        found = slopes(functools.partial(routed, form, **options), (x, kernel, bias), weights_of())
        assert all(np.isfinite(gradient).all() for gradient in found)
    random = np.random.default_rng(0)
    found = slopes(lambda *a: attended(form, *a), (x, kernel, random.normal(size=(I, J))),
                   weights_of())  # fmt: skip
    assert all(np.isfinite(gradient).all() for gradient in found)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"leaky": True, "softmax_over": "inputs"},
            "`leaky` goes with.*Received: softmax_over='inputs'",
        ),
        ({"leaky": "yes"}, "`leaky` must be true or false.*Received: leaky='yes'"),
        ({"logits": "kept"}, "`logits` must be 'accumulated' or 'replaced'.*Received"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RoutingOptions(**options)


def test_exponential_squash():
    z = np.random.default_rng(0).normal(size=(20, 5)) * np.logspace(-6, 3, 20)[:, None]
    n = np.linalg.norm(z, axis=1, keepdims=True)
    np.testing.assert_allclose(exponential_squash(z), -np.expm1(-n) * z / n, rtol=1e-12)
    (gradient,) = slopes(lambda z: [exponential_squash(z)], [np.zeros((2, 3))], [1.0])
    assert np.isfinite(gradient).all()
