"""The streamed form gives the plain form's numbers, whatever the options, sizes and values."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_capsule_poe.core.fused import blocks
from keras_capsule_poe.core.fused.router import route_blocks
from keras_capsule_poe.functions import (
    BinaryUnits,
    BlockMaps,
    CapsuleUnits,
    EinsumMaps,
    GaussianUnits,
    Router,
    RoutingOptions,
    contrastive_divergence,
    decoder_rule,
    route,
    squash,
)

# The plain form's softmax over a layer of one capsule.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis")


class Form:
    """Routing and the rules over one kind of maps."""

    def __init__(self, maps):
        self.maps = maps

    def route(self, x, kernel, bias=None, units=None, **options):
        if units is None and self.maps is BlockMaps:
            return route(x, kernel, bias, **options)
        options, units = RoutingOptions(**options), units or CapsuleUnits()
        if self.maps is BlockMaps:
            return route_blocks(x, kernel, options, bias, units)
        return Router(self.maps(kernel), options, bias, units=units).route(x)

    def divergence(self, x, kernel, c):
        return contrastive_divergence(self.maps(kernel), x, c)[:4]

    def decoder(self, x, z, kernel, c, conditional=False):
        return decoder_rule(self.maps(kernel), x, z, c, conditional=conditional)[:4]

    def routed_divergence(self, x, kernel, bias=None, **options):
        maps = self.maps(kernel)
        router = Router(maps, RoutingOptions(**options), bias)
        return contrastive_divergence(maps, x, routing=router)[:4]

    def routed_decoder(self, x, z, kernel, conditional=False, bias=None, **options):
        maps = self.maps(kernel)
        router = Router(maps, RoutingOptions(**options), bias)
        return decoder_rule(maps, x, z, routing=router, conditional=conditional)[:4]


plain, streamed = Form(EinsumMaps), Form(BlockMaps)


@pytest.fixture(autouse=True)
def groups(monkeypatch):
    """Groups as large maps have them: by default maps as small as these are in one or two."""
    monkeypatch.setattr(blocks, "_LEAST_NUMBERS", 600)


# (B, I, J, D, E): encoder's and decoder's shapes, one capsule, one dimension, groups of capsules.
SIZES = {
    "encoder": (5, 40, 6, 8, 16),
    "decoder": (5, 6, 40, 16, 8),
    "one output": (3, 7, 1, 4, 5),
    "one input": (3, 1, 7, 4, 5),
    "one dimension": (2, 9, 4, 1, 1),
    "one image": (1, 12, 5, 3, 2),
    "groups": (4, 41, 37, 3, 2),
    "groups of inputs": (4, 37, 41, 2, 3),
}


def data(name, dtype="float32", gain=1.0, seed=0):
    b, i, j, d, e = SIZES[name]
    random = np.random.default_rng(seed)
    x = squash(random.normal(size=(b, i, d)).astype(dtype))
    z = random.normal(size=(b, j, e)).astype(dtype)
    kernel = gain * random.normal(size=(i, j, e, d)).astype(dtype)
    return x, ops.convert_to_tensor(z), ops.convert_to_tensor(kernel.astype(dtype))


def assert_same(ours, theirs, tolerance=1e-5):
    for a, b in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs)):
        a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= tolerance * np.abs(b).max(), np.abs(a - b).max()


def options_for(name, **options):
    outputs = SIZES[name][2]
    if options.pop("biased", False):
        options["bias"] = ops.linspace(-1.0, 1.0, outputs)
    return options


MATRIX = [
    {"softmax_over": n, "agreement": k, "routing_iterations": r, **more}
    for n, k, (r, more) in itertools.product(
        ("inputs", "outputs"),
        ("cosine", "dot"),
        (
            (1, {}),
            (1, {"biased": True, "coefficient_sum": 3.0}),
            (2, {"coefficient_sum": 5.0}),
            (4, {"agreement_scale": 4.0, "activation_prior_weight": 0.5, "biased": True}),
        ),
    )
]


@pytest.mark.some(3)
@pytest.mark.parametrize("options", MATRIX, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("name", ["encoder", pytest.param("decoder", marks=pytest.mark.long)])
def test_every_option_gives_the_plain_numbers(name, options):
    x, z, kernel = data(name, gain=0.3)
    options = options_for(name, **options)
    ours, theirs = streamed.route(x, kernel, **options), plain.route(x, kernel, **options)
    assert_same(ours, theirs)
    c = theirs.coefficients
    assert_same(streamed.divergence(x, kernel, c), plain.divergence(x, kernel, c))
    for conditional in (False, True):
        assert_same(
            streamed.decoder(x, z, kernel, c, conditional),
            plain.decoder(x, z, kernel, c, conditional),
        )
    assert_same(
        streamed.routed_divergence(x, kernel, **options),
        plain.routed_divergence(x, kernel, **options),
    )
    for conditional in (False, True):
        assert_same(
            streamed.routed_decoder(x, z, kernel, conditional, **options),
            plain.routed_decoder(x, z, kernel, conditional, **options),
        )


# Gradients

GRADIENTS = [
    {"routing_iterations": 1, "softmax_over": "outputs", "biased": True},
    {"routing_iterations": 3, "softmax_over": "inputs", "agreement_scale": 3.0},
    {"routing_iterations": 3, "softmax_over": "inputs", "agreement": "dot", "coefficient_sum": 7.0},
    {
        "routing_iterations": 4,
        "softmax_over": "outputs",
        "activation_prior_weight": 0.4,
        "biased": True,
    },
    {
        "routing_iterations": 3,
        "softmax_over": "outputs",
        "agreement": "dot",
        "coefficient_sum": 2.0,
        "biased": True,
    },
]


def gradients(implementation, x, kernel, options, of_c=True):
    options = {
        "agreement_scale": 1.0,
        "activation_prior_weight": 0.0,
        "coefficient_sum": 1.0,
        **options,
    }
    numbers = ("temperature", "activation_prior_weight", "coefficient_sum", "bias")
    names = [name for name in numbers if name in options]
    sources = [x, kernel] + [tf.cast(options[name], x.dtype) for name in names]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        given = {**options, **dict(zip(names, sources[2:]))}
        c, z = implementation.route(sources[0], sources[1], **given)
        random = np.random.default_rng(1)
        total = ops.sum(z * random.normal(size=z.shape).astype(z.dtype.name))
        if of_c:
            total = total + ops.sum(c * random.normal(size=c.shape).astype(c.dtype.name))
    found = tape.gradient(total, sources, unconnected_gradients="zero")
    return dict(zip(["x", "kernel", *names], found))


def assert_same_gradients(x, kernel, options, tolerance):
    ours = gradients(streamed, x, kernel, options)
    for name, expected in gradients(plain, x, kernel, options).items():
        a, b = np.asarray(ours[name], "float64"), np.asarray(expected, "float64")
        # Over the inputs the prior has no effect: what is not zero there is rounding.
        assert np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 0.01), name


@pytest.mark.parametrize("options", GRADIENTS, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_the_gradient_is_that_of_autodiff_through_the_plain_form(name, options):
    x, _, kernel = data(name, "float64", gain=0.3)
    options = options_for(name, **options)
    assert_same_gradients(x, kernel, options, 1e-9)


@pytest.mark.parametrize("units", [BinaryUnits(), GaussianUnits()], ids=lambda u: type(u).__name__)
def test_the_gradient_for_other_units(units):
    """Rejects a router that takes squash, or its log-odds, for those of all units."""
    x, _, kernel = data("encoder", "float64", gain=0.3)
    options = {
        "routing_iterations": 3,
        "agreement": "dot",
        "activation_prior_weight": 0.4,
        "units": units,
    }
    assert_same_gradients(x, kernel, {"softmax_over": "outputs", **options}, 1e-9)


@pytest.mark.parametrize("name", ["one output", "one input", "one dimension", "groups of inputs"])
def test_gradients_of_odd_sizes(name):
    x, _, kernel = data(name, "float64", gain=0.3)
    assert_same_gradients(x, kernel, {"routing_iterations": 3, "softmax_over": "outputs"}, 1e-9)


def test_gradients_in_float32():
    x, _, kernel = data("encoder", gain=0.3)
    assert_same_gradients(x, kernel, {"routing_iterations": 4, "softmax_over": "outputs"}, 1e-4)


def test_gradients_are_finite_and_zero_for_zero_vectors():
    x, _, kernel = data("encoder", gain=0.3)
    x = ops.concatenate([ops.zeros_like(x[:, :5]), x[:, 5:]], axis=1)
    kernel = ops.concatenate([kernel[:10], ops.zeros_like(kernel[10:20]), kernel[20:]], axis=0)
    for options in ({"softmax_over": "outputs"}, {"softmax_over": "inputs", "agreement": "dot"}):
        assert_same_gradients(x, kernel, {"routing_iterations": 3, **options}, 1e-4)


# Slices of the batch, graphs


@pytest.fixture
def few_images_at_once(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 2000)


@pytest.mark.parametrize(
    "name, softmax_over",
    [("encoder", "inputs"), pytest.param("decoder", "outputs", marks=pytest.mark.long)],
)
def test_slices_and_graphs_of_any_batch(name, softmax_over, few_images_at_once):
    _, i, j, d, e = SIZES[name]
    options = {"routing_iterations": 2, "softmax_over": softmax_over}

    def everything(implementation, x, z, kernel):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            routing = implementation.route(x, kernel, **options)
            loss = tf.reduce_sum(routing.z**2)
        c = tf.stop_gradient(routing.coefficients)
        return [
            routing,
            tape.gradient(loss, [x, kernel]),
            implementation.divergence(x, kernel, c),
            implementation.decoder(x, z, kernel, c),
            implementation.routed_divergence(x, kernel, **options),
            implementation.routed_decoder(x, z, kernel, **options),
        ]

    signature = [
        tf.TensorSpec((None, i, d)),
        tf.TensorSpec((None, j, e)),
        tf.TensorSpec((i, j, e, d)),
    ]
    graph = tf.function(
        lambda *args: everything(streamed, *args), input_signature=signature, autograph=False
    )
    random = np.random.default_rng(0)
    kernel = tf.constant(0.3 * random.normal(size=(i, j, e, d)), "float32")
    assert BlockMaps(kernel).images_at_once() == 3
    for batch in (1, 3, 7):
        x = squash(random.normal(size=(batch, i, d)).astype("float32"))
        z = tf.constant(random.normal(size=(batch, j, e)), "float32")
        expected = everything(plain, x, z, kernel)
        assert_same(graph(x, z, kernel), expected)
    assert_same(everything(streamed, x, z, kernel), expected)


def test_an_empty_batch_has_empty_results():
    _, _, kernel = data("encoder")
    route = tf.function(
        lambda x: streamed.route(x, kernel, routing_iterations=2),
        input_signature=[tf.TensorSpec((None, 40, 8))],
        autograph=False,
    )
    assert route(tf.zeros((0, 40, 8))).z.shape == (0, 6, 16)


@pytest.mark.some(3)
@pytest.mark.parametrize("least", [1, 10**9])
@pytest.mark.parametrize("name", SIZES)
def test_sizes(name, least, monkeypatch):
    monkeypatch.setattr(blocks, "_LEAST_NUMBERS", least)
    x, z, kernel = data(name, gain=0.3)
    for softmax_over in ("inputs", "outputs"):
        options = {"routing_iterations": 3, "softmax_over": softmax_over}
        assert_same(streamed.route(x, kernel, **options), plain.route(x, kernel, **options))
        assert_same(
            streamed.routed_decoder(x, z, kernel, **options),
            plain.routed_decoder(x, z, kernel, **options),
        )


# Numbers: types and ranges


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_float64(name):
    x, _, kernel = data(name, "float64", gain=0.3)
    options = {"routing_iterations": 4, "softmax_over": "outputs"}
    ours = streamed.routed_divergence(x, kernel, **options)
    assert ours[0].dtype == "float64"
    assert_same(ours, plain.routed_divergence(x, kernel, **options), 1e-12)


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_bfloat16(name):
    x, _, kernel = data(name, gain=0.3)
    options = {"routing_iterations": 4, "softmax_over": "outputs"}
    expected = plain.route(x, kernel, **options)
    ours = streamed.route(ops.cast(x, "bfloat16"), ops.cast(kernel, "bfloat16"), **options)
    assert ours.z.dtype == expected.z.dtype
    assert_same(ours, expected, 2e-2)


def test_temperature_and_prior_may_be_tensors():
    x, _, kernel = data("encoder", gain=0.3)
    numbers = {"agreement_scale": 2.0, "activation_prior_weight": 0.7}
    tensors = {name: tf.constant(value) for name, value in numbers.items()}
    options = {"softmax_over": "outputs", "routing_iterations": 3}
    assert_same(
        streamed.route(x, kernel, **tensors, **options),
        plain.route(x, kernel, **numbers, **options),
    )


@pytest.mark.parametrize("name", ["encoder", "decoder"])
@pytest.mark.parametrize("size", [0.0, 1e-20, 1e20])
def test_inputs_and_maps_of_any_size(name, size):
    x, _, kernel = data(name)
    options = {"routing_iterations": 3, "softmax_over": "outputs"}
    for x_size, kernel_size in ((size, 1.0), (1.0, size)):
        given = x_size * x, kernel_size * kernel
        assert_same(streamed.route(*given, **options), plain.route(*given, **options))
    some = ops.concatenate([size * x[:, :2], x[:, 2:]], axis=1)
    assert_same(streamed.route(some, kernel, **options), plain.route(some, kernel, **options))
    some = ops.concatenate([size * kernel[:2], kernel[2:]], axis=0)
    if size < 1:  # maps below 1e-15 of the largest have no direction here
        assert np.isfinite(streamed.route(x, some, **options).z).all()


def test_nan_is_not_hidden():
    x, _, kernel = data("encoder")
    bad = tf.tensor_scatter_nd_update(x, [[1, 2, 3]], [np.nan])
    z = np.asarray(streamed.route(bad, kernel).z)
    assert np.isnan(z[1]).all()
    assert np.isfinite(z[[0, 2, 3, 4]]).all()


@pytest.mark.parametrize(
    "options",
    [{"routing_iterations": 0}, {"softmax_over": "both"}, {"agreement": "angle"}],
    ids=str,
)
def test_options_without_meaning_are_refused(options):
    x, _, kernel = data("encoder")
    with pytest.raises(ValueError, match="Received"):
        streamed.route(x, kernel, **options)


@pytest.mark.some(3)
@pytest.mark.parametrize("name", ["encoder", "decoder"])
@pytest.mark.parametrize("x_size, kernel_size", [(1, 1e-20), (1e-20, 1), (1, 1e18), (1e18, 1)])
def test_gradients_for_inputs_and_maps_of_any_size(name, x_size, kernel_size):
    x, _, kernel = data(name)
    for kind in ("cosine", "dot"):
        options = {"routing_iterations": 3, "softmax_over": "outputs", "agreement": kind}
        found = gradients(streamed, x_size * x, kernel_size * kernel, options)
        assert all(np.isfinite(gradient).all() for gradient in found.values())
