"""Every form of routing in one table, against NumPy in float64.

The forms are the readable one over `EinsumMaps`, the fused one, and the fused one of shared maps.
`numpy_routing` is written from the papers, over votes that are all held. Rejected: a softmax over
the other side or over all pairs; a leak that stays in the coefficients, or whose logit is not zero;
logits that add up where they should be replaced; an agreement with z and not with its direction; a
bias that routing does not see, or that comes after it; a prior or a routing bias that a softmax
over the inputs does not cancel; in attention a bias inside the softmax, or no division by sqrt(E);
a gradient by hand without one of these terms; results that depend on order or on slices.
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
    direction,
    exponential_squash,
    route,
    squash,
)

B, I, J, D, E = 3, 7, 4, 5, 6
FORMS = ("reference", "fused", "shared")
# Float64 sums of at most 60 terms of order one, in another order, through five softmaxes.
CLOSE = {"rtol": 1e-11, "atol": 1e-12}
BIAS = np.array([0.5, -1.0, 2.0, 0.0])


def rows():
    """Options of routing: each kind of agreement, softmax and logits, then each number."""
    choices = ("cosine", "dot", "projection"), ("inputs", "outputs"), (False, True)
    for agreement, softmax_over, leaky in itertools.product(*choices):
        if not (leaky and softmax_over == "inputs"):
            for logits in ("accumulated", "replaced"):
                yield dict(
                    agreement=agreement, softmax_over=softmax_over, leaky=leaky, logits=logits
                )
    scale, total, prior = "agreement_scale", "coefficient_sum", "activation_prior_weight"
    numbers = {scale: 5.0}, {scale: 0.01}, {total: 7.0}, {prior: 0.8}, {"bias": BIAS}
    every = {scale: 2.0, total: 5.0, prior: 0.3, "bias": BIAS}
    for more, agreement, softmax_over in itertools.product((*numbers, every), *choices[:2]):
        yield dict(agreement=agreement, softmax_over=softmax_over, **more)


ROWS = list(rows())
# Each kind of agreement and logits, leaking or not, over either side, once at least.
LEARNED = [ROWS[0], ROWS[3], ROWS[5], ROWS[8], ROWS[11], ROWS[14], ROWS[17]]


def named(options):
    return "-".join(str(value) for name, value in options.items() if name != "bias")


def problem(form="fused", seed=0, shape=(B, I, J, D, E), gain=0.6):
    """Input capsules (B, I, D), maps (I, J, E, D), or (1, J, E, D) if shared, and biases (J, E)."""
    b, i, j, d, e = shape
    random = np.random.default_rng(seed)
    x = random.normal(size=(b, i, d))
    kernel = gain * random.normal(size=(1 if form == "shared" else i, j, e, d))
    return x, kernel, random.normal(size=(j, e))


def numpy_routing(
    x, kernel, own=0.0, *, bias=0.0, routing_iterations=3, agreement="cosine", leaky=False,
    softmax_over="outputs", logits="accumulated", agreement_scale=1.0, activation_prior_weight=0.0,
    coefficient_sum=1.0,
):  # fmt: skip
    kernel = np.broadcast_to(kernel, (x.shape[1], *kernel.shape[1:]))
    votes = np.einsum("bid,ijed->bije", x, kernel)
    b, prior = np.zeros(votes.shape[:3]), 0.0
    for iteration in range(routing_iterations):
        powers = np.exp(b + bias + prior)
        total = powers.sum(axis=1 if softmax_over == "inputs" else 2, keepdims=True)
        c = coefficient_sum * powers / (total + leaky)
        z = np.einsum("bij,bije->bje", c, votes) + own
        if iteration == routing_iterations - 1:
            return c, z
        n = np.linalg.norm(z, axis=-1, keepdims=True)
        towards = n / (1 + n**2) * z if agreement == "dot" else z / n
        sizes = np.linalg.norm(votes, axis=-1) if agreement == "cosine" else 1.0
        a = agreement_scale * np.einsum("bije,bje->bij", votes, towards) / sizes
        b = a if logits == "replaced" else b + a
        prior = activation_prior_weight * 2 * np.log(n)[..., 0][:, None]


def numpy_attention(x, kernel, bias):
    votes = np.einsum("bid,ijed->bije", x, kernel)
    logits = np.einsum("bije,bkje->bij", votes, votes) / np.sqrt(votes.shape[-1])
    powers = np.exp(logits - logits.max(axis=2, keepdims=True))
    c = powers / powers.sum(axis=2, keepdims=True) + bias
    return c, np.einsum("bij,bije->bje", c, votes)


def routed(form, x, kernel, own=None, bias=None, **options):
    options = {"routing_iterations": 3, "softmax_over": "outputs", **options}
    if form != "reference":
        return route(x, kernel, bias, hidden_bias=own, shared=form == "shared", **options)
    kernel = ops.broadcast_to(kernel, (x.shape[1], *kernel.shape[1:]))
    return Router(EinsumMaps(kernel), RoutingOptions(**options), bias, hidden_bias=own).route(x)


def attended(form, x, kernel, bias):
    if form == "fused":
        return attend(x, kernel, bias)
    return SelfAttention(EinsumMaps(kernel), bias).route(x)


def assert_close(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, **CLOSE)


@pytest.mark.parametrize("options", ROWS, ids=named)
def test_each_form_is_that_of_the_papers(options):
    for form, (iterations, has_own) in itertools.product(
        FORMS, ((1, False), (2, True), (5, False))
    ):
        x, kernel, own = problem(form)
        own, options = own if has_own else None, {**options, "routing_iterations": iterations}
        expected = numpy_routing(x, kernel, own if has_own else 0.0, **options)
        assert_close(routed(form, x, kernel, own, **options), expected)
    c, total = np.asarray(expected[0]), options.get("coefficient_sum", 1.0)
    sums = [c.sum(axis=axis) / total for axis in (1, 2)]
    over, other = sums if options["softmax_over"] == "inputs" else sums[::-1]
    assert np.all(over < 1) if options.get("leaky") else np.allclose(over, 1, rtol=1e-14)
    # What other softmaxes would have made sum to one.
    assert np.abs(other - 1).max() > 0.1 and c.min() > 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "shape", [(2, 1, 4, 3, 2), (2, 5, 1, 3, 2), (1, 2, 6, 1, 1), (1, 9, 2, 1, 3)]
)
def test_sizes(form, shape):
    x, kernel, own = problem(form, seed=2, shape=shape)
    for softmax_over in ("inputs", "outputs"):
        options = {"softmax_over": softmax_over, "activation_prior_weight": 0.4}
        expected = numpy_routing(x, kernel, own, **options)
        assert_close(routed(form, x, kernel, own, **options), expected)


@pytest.mark.parametrize("form", FORMS)
def test_images_inputs_and_outputs_may_come_in_any_order(form):
    """With their maps: every row, and attention; a bias goes with its output."""
    x, kernel, own = problem(form, seed=9)
    random = np.random.default_rng(0)
    images, inputs, outputs = (random.permutation(number) for number in (B, I, J))
    ordered = (kernel if form == "shared" else kernel[inputs])[:, outputs]
    for options in ROWS:
        bias = options.get("bias", BIAS)
        c, z = map(np.asarray, routed(form, x, kernel, own, **{**options, "bias": bias}))
        expected = c[images][:, inputs][:, :, outputs], z[images][:, outputs]
        options = {**options, "bias": bias[outputs]}
        found = routed(form, x[images][:, inputs], ordered, own[outputs], **options)
        assert_close(found, expected)
    if form != "shared":
        share = random.normal(size=(I, J))
        c, z = map(np.asarray, attended(form, x, kernel, share))
        found = attended(form, x[:, inputs], ordered, share[inputs][:, outputs])
        assert_close(found, (c[:, inputs][:, :, outputs], z[:, outputs]))


@pytest.mark.parametrize("form", FORMS)
def test_what_cancels_and_what_is_a_unit(form):
    x, kernel, _ = problem(form, seed=5)
    bias = np.array([3.0, -2.0, 0.0, 1.0])
    more = {"activation_prior_weight": 2.0, "bias": bias}
    for softmax_over in ("inputs", "outputs"):
        of = functools.partial(routed, form, x, softmax_over=softmax_over)
        bare, other = of(kernel), of(kernel, **more)
        if softmax_over == "inputs":
            assert_close(other, bare)
        else:
            assert np.abs(other.z - bare.z).max() > 0.1
        # The sum of the coefficients is a unit of the maps.
        one, other = of(9.0 * kernel), of(kernel, coefficient_sum=9.0)
        assert_close((9 * one.coefficients, one.z), other)
        mean = np.asarray(of(kernel, coefficient_sum="mean").coefficients)
        np.testing.assert_allclose(mean.sum(axis=(1, 2)), I * J, rtol=1e-12)


@pytest.mark.parametrize("form", ("reference", "fused"))
@pytest.mark.parametrize("kind", ("cosine", "dot"))
def test_the_input_that_disagrees_loses(form, kind):
    """Three votes point one way and the fourth against them; the other output sees no conflict."""
    x, kernel = np.full((1, 4, 1), 0.9), np.full((4, 2, 2, 1), [[1.0], [0.5]])
    kernel[3, 0] *= -1.0
    found = [routed(form, x, kernel, agreement=kind, routing_iterations=n) for n in range(1, 6)]
    shares = [np.asarray(each.coefficients)[0, :, 0] for each in found]
    assert np.array_equal(shares[0], np.full(4, 0.5))
    assert np.all(np.diff([share[3] for share in shares]) < 0)
    assert shares[-1][3] < shares[-1][0] - 0.1


def test_self_attention_is_that_of_the_paper():
    for sizes in ((7, 4), (4, 7)):
        random = np.random.default_rng(1)
        x, kernel = random.normal(size=(B, sizes[0], 5)), random.normal(size=(*sizes, 9, 5)) / 3
        bias = random.normal(size=sizes)
        expected = numpy_attention(x, kernel, bias)
        np.testing.assert_allclose((expected[0] - bias).sum(axis=2), 1, rtol=1e-14)
        for form in ("reference", "fused"):
            assert_close(attended(form, x, kernel, bias), expected)
        # Without a bias it is none of its own.
        assert_close(attend(x, kernel), numpy_attention(x, kernel, 0.0))


# Gradients


def slopes(function, arrays, weights):
    """Gradients of a weighted sum of the results in each array."""
    tensors = [tf.constant(array) for array in arrays]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        total = sum(ops.sum(part * w) for part, w in zip(function(*tensors), weights))
    found = tape.gradient(total, tensors, unconnected_gradients="zero")
    return [np.asarray(gradient) for gradient in found]


def assert_slope(function, arrays, weights, gradients):
    """Gradients against a difference in one direction."""
    random, h = np.random.default_rng(4), 1e-5
    steps = [random.normal(size=np.shape(array)) for array in arrays]

    def total(share):
        parts = function(*(a + share * d for a, d in zip(arrays, steps)))
        return sum(np.sum(np.asarray(part) * w) for part, w in zip(parts, weights))

    slope = sum(np.sum(a * b) for a, b in zip(gradients, steps))
    # h^2 = 1e-10 times third derivatives of order 1000, and rounding of sums of 100 over 1e-5.
    assert abs(slope - (total(h) - total(-h)) / (2 * h)) < 1e-6 * max(1, abs(slope))


def weights_of(sizes=(I, J), dim=E, seed=3):
    random = np.random.default_rng(seed)
    return random.normal(size=(B, *sizes)), random.normal(size=(B, sizes[1], dim))


@pytest.mark.parametrize("options", LEARNED, ids=named)
@pytest.mark.parametrize("form", ["fused", "shared"])
def test_the_gradient_by_hand_is_that_of_autodiff_and_of_differences(form, options):
    """In inputs, maps and biases, and in the numbers, of which a leak has a share, too."""
    numbers = {"agreement_scale": 1.5, "activation_prior_weight": 0.4, "coefficient_sum": 2.0}
    arrays = [*problem(form, seed=2), np.linspace(-1, 1, J), *map(np.array, numbers.values())]

    def value(form):
        def of(x, kernel, own, bias, *given):
            return routed(form, x, kernel, own, bias, **options, **dict(zip(numbers, given)))

        return of

    ours, plain = (slopes(value(each), arrays, weights_of()) for each in (form, "reference"))
    assert_close(ours, plain)
    assert_slope(value(form), arrays, weights_of(), ours)


@pytest.mark.parametrize("sizes", [(I, J), (J, I)])
def test_the_gradient_of_attention_by_hand_is_that_of_autodiff_and_of_differences(sizes):
    random = np.random.default_rng(5)
    x, kernel = random.normal(size=(B, sizes[0], D)), random.normal(size=(*sizes, 8, D)) / 2
    arrays, weights = [x, kernel, random.normal(size=sizes)], weights_of(sizes, 8)
    ours, plain = (
        slopes(functools.partial(attended, form), arrays, weights)
        for form in ("fused", "reference")
    )
    assert_close(ours, plain)
    assert_slope(functools.partial(attended, "fused"), arrays, weights, ours)


def test_a_few_images_at_a_time_give_the_same_numbers(monkeypatch):
    (x, kernel, bias), own = problem("shared", seed=7), problem(seed=7)[1]

    def whole():
        of_shared = functools.partial(routed, "shared", agreement="cosine")
        found = slopes(of_shared, (x, kernel, bias), weights_of())
        return found + slopes(attend, (x, own, np.zeros((I, J))), weights_of())

    expected = whole()
    for module in (blocks, shared):
        monkeypatch.setattr(module, "BLOCK", 100)
    assert_close(whole(), expected)


@pytest.mark.parametrize("form", ["reference", "fused"])
def test_zero_vectors_give_finite_numbers_and_slopes(form):
    x, kernel, bias = (np.zeros_like(array) for array in problem())
    for options in LEARNED:
        c, z = routed(form, x, kernel, bias, **options)
        side = I if options["softmax_over"] == "inputs" else J + options["leaky"]
        np.testing.assert_allclose(c, 1 / side, rtol=1e-12)
        assert not np.any(z)
        found = slopes(functools.partial(routed, form, **options), (x, kernel, bias), weights_of())
        assert all(np.isfinite(gradient).all() for gradient in found)
    arrays = x, kernel, np.random.default_rng(0).normal(size=(I, J))
    found = slopes(functools.partial(attended, form), arrays, weights_of())
    assert all(np.isfinite(gradient).all() for gradient in found)


# Maps, options


def test_votes_and_agreements_of_the_readable_maps_in_loops():
    x, kernel, _ = problem(seed=10)
    maps = EinsumMaps(kernel)
    predictions = np.asarray(maps.votes(x))
    z = np.random.default_rng(11).normal(size=(B, J, E))
    cosine, dot = (
        np.asarray(maps.Agreement(maps, kind).of(maps.Agreement(maps, kind).measure(x), towards(z)))
        for kind, towards in (("cosine", direction), ("dot", squash))
    )
    for b, i, j in itertools.product(range(B), range(I), range(J)):
        v, n = kernel[i, j] @ x[b, i], np.linalg.norm(z[b, j])
        np.testing.assert_allclose(predictions[b, i, j], v, **CLOSE)
        np.testing.assert_allclose(cosine[b, i, j], v @ z[b, j] / n / np.linalg.norm(v), **CLOSE)
        np.testing.assert_allclose(dot[b, i, j], v @ z[b, j] * n / (1 + n**2), **CLOSE)


def test_the_same_sums_by_blocks_and_by_einsum():
    """Every verb of the maps, in both of the blocks' layouts."""
    for shape in ((B, 9, J, D, 8), (B, J, 9, 8, D)):
        x, kernel, _ = problem(seed=12, shape=shape)
        random = np.random.default_rng(13)
        c = random.uniform(size=(B, *kernel.shape[:2]))
        y = random.normal(size=(B, *kernel.shape[1:3]))
        found = []
        for maps in (EinsumMaps(kernel), blocks.BlockMaps(kernel)):
            pairs, laid_x, laid_y = maps.lay_pairs(c), maps.lay_inputs(x), maps.lay_outputs(y)
            found.append(
                (
                    maps.unlay_outputs(maps.up(pairs, laid_x)),
                    maps.unlay_inputs(maps.down(pairs, laid_y)),
                    maps.unlay_maps(maps.correlation(pairs, laid_y, laid_x)),
                    maps.unlay_outputs(maps.equal_up(laid_x)),
                    maps.unlay_pairs(maps.agreement(laid_y, laid_x)),
                )
            )
        assert_close(*found)


NUMBERS = ("agreement_scale", "coefficient_sum", "activation_prior_weight")
WORDLESS = [(name, value) for name in NUMBERS for value in (True, np.nan, np.inf, "two", None)]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"routing_iterations": 0}, "`routing_iterations`.*Received: routing_iterations=0"),
        ({"routing_iterations": 2.5}, "`routing_iterations`.*Received: routing_iterations=2.5"),
        ({"softmax_over": "both"}, "`softmax_over`.*'inputs'.*'outputs'.*Received: .*'both'"),
        ({"agreement": "angle"}, "`agreement`.*'cosine'.*'dot'.*Received: agreement='angle'"),
        ({"leaky": True, "softmax_over": "inputs"}, "`leaky` goes with.*Received: .*'inputs'"),
        ({"leaky": "yes"}, "`leaky` must be true or false.*Received: leaky='yes'"),
        ({"logits": "kept"}, "`logits` must be 'accumulated' or 'replaced'.*Received"),
        *(({name: value}, f"`{name}` must be .*Received: {name}=") for name, value in WORDLESS),
        *(({n: v}, f"`{n}` must be .*Received: {n}=") for n in NUMBERS[:2] for v in (0, -1.0)),
    ],
)
def test_bad_options_are_refused(options, message):
    x, kernel, _ = problem()
    for form in ("reference", "fused"):
        with pytest.raises(ValueError, match=message):
            routed(form, x, kernel, **options)


def test_exponential_squash():
    z = np.random.default_rng(0).normal(size=(20, 5)) * np.logspace(-6, 3, 20)[:, None]
    n = np.linalg.norm(z, axis=1, keepdims=True)
    np.testing.assert_allclose(exponential_squash(z), -np.expm1(-n) * z / n, rtol=1e-12)
    (gradient,) = slopes(lambda z: [exponential_squash(z)], [np.zeros((2, 3))], [1.0])
    assert np.isfinite(gradient).all()
