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


def routed(maps, x, kernel, bias=None, units=None, **options):
    """Routing over one kind of maps."""
    if units is None and maps is BlockMaps:
        return route(x, kernel, bias, **options)
    options, units = RoutingOptions(**options), units or CapsuleUnits()
    if maps is BlockMaps:
        return route_blocks(x, kernel, options, bias, units)
    return Router(maps(kernel), options, bias, units=units).route(x)


def ruled(maps, x, z, kernel, c=None, bias=None, **options):
    """Contrastive divergence and both decoder rules, with coefficients c or with routing."""
    maps = maps(kernel)
    router = Router(maps, RoutingOptions(**options), bias) if c is None else None
    return [
        contrastive_divergence(maps, x, c, routing=router)[:4],
        decoder_rule(maps, x, z, c, routing=router)[:4],
        decoder_rule(maps, x, z, c, routing=router, conditional=True)[:4],
    ]


def assert_both_the_same(function, *args, tolerance=1e-5, **options):
    ours, theirs = (function(maps, *args, **options) for maps in (BlockMaps, EinsumMaps))
    assert_same(ours, theirs, tolerance)
    return ours


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
    c = assert_both_the_same(routed, x, kernel, **options).coefficients
    assert_both_the_same(ruled, x, z, kernel, c)
    assert_both_the_same(ruled, x, z, kernel, **options)


# Gradients


def gradients(maps, x, kernel, options):
    options = {
        "agreement_scale": 1.0,
        "activation_prior_weight": 0.0,
        "coefficient_sum": 1.0,
        **options,
    }
    numbers = ("agreement_scale", "activation_prior_weight", "coefficient_sum", "bias")
    names = [name for name in numbers if name in options]
    sources = [x, kernel] + [tf.cast(options[name], x.dtype) for name in names]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        given = {**options, **dict(zip(names, sources[2:]))}
        c, z = routed(maps, sources[0], sources[1], **given)
        random = np.random.default_rng(1)
        total = ops.sum(z * random.normal(size=z.shape).astype(z.dtype.name))
        total = total + ops.sum(c * random.normal(size=c.shape).astype(c.dtype.name))
    found = tape.gradient(total, sources, unconnected_gradients="zero")
    return dict(zip(["x", "kernel", *names], found))


def assert_same_gradients(x, kernel, options, tolerance):
    ours = gradients(BlockMaps, x, kernel, options)
    for name, expected in gradients(EinsumMaps, x, kernel, options).items():
        a, b = np.asarray(ours[name], "float64"), np.asarray(expected, "float64")
        # Over the inputs the prior has no effect: what is not zero there is rounding.
        assert np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 0.01), name


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


@pytest.mark.parametrize("name", [name for name in SIZES if name != "one image"])
def test_the_gradient_is_that_of_autodiff_through_the_plain_form(name):
    x, _, kernel = data(name, "float64", gain=0.3)
    options = {"routing_iterations": 3, "softmax_over": "outputs"}
    assert_same_gradients(x, kernel, options, 1e-9)
    if name in ("encoder", "decoder"):
        more = {"activation_prior_weight": 0.4, "coefficient_sum": 2.0, "agreement_scale": 3.0}
        options = options_for(name, biased=True, **options, **more)
        assert_same_gradients(x, kernel, options, 1e-9)
        assert_same_gradients(x, kernel, {**options, "softmax_over": "inputs"}, 1e-9)


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
    [("encoder", "inputs"), ("decoder", "outputs")],
)
@pytest.mark.long
def test_slices_and_graphs_of_any_batch(name, softmax_over, few_images_at_once):
    _, i, j, d, e = SIZES[name]
    options = {"routing_iterations": 2, "softmax_over": softmax_over}

    def everything(maps, x, z, kernel):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            routing = routed(maps, x, kernel, **options)
            loss = tf.reduce_sum(routing.z**2)
        c = tf.stop_gradient(routing.coefficients)
        found = [routing, tape.gradient(loss, [x, kernel]), ruled(maps, x, z, kernel, c)]
        return [*found, ruled(maps, x, z, kernel, **options)]

    signature = [
        tf.TensorSpec((None, i, d)),
        tf.TensorSpec((None, j, e)),
        tf.TensorSpec((i, j, e, d)),
    ]
    graph = tf.function(
        lambda *args: everything(BlockMaps, *args), input_signature=signature, autograph=False
    )
    random = np.random.default_rng(0)
    kernel = tf.constant(0.3 * random.normal(size=(i, j, e, d)), "float32")
    assert BlockMaps(kernel).images_at_once() == 3
    for batch in (1, 3, 7):
        x = squash(random.normal(size=(batch, i, d)).astype("float32"))
        z = tf.constant(random.normal(size=(batch, j, e)), "float32")
        expected = everything(EinsumMaps, x, z, kernel)
        assert_same(graph(x, z, kernel), expected)
    assert_same(everything(BlockMaps, x, z, kernel), expected)


def test_an_empty_batch_has_empty_results():
    _, _, kernel = data("encoder")
    call = tf.function(
        lambda x: routed(BlockMaps, x, kernel, routing_iterations=2),
        input_signature=[tf.TensorSpec((None, 40, 8))],
        autograph=False,
    )
    assert call(tf.zeros((0, 40, 8))).z.shape == (0, 6, 16)


@pytest.mark.some(3)
@pytest.mark.parametrize("least", [1, 10**9])
@pytest.mark.parametrize("name", SIZES)
def test_sizes(name, least, monkeypatch):
    monkeypatch.setattr(blocks, "_LEAST_NUMBERS", least)
    x, z, kernel = data(name, gain=0.3)
    for softmax_over in ("inputs", "outputs"):
        options = {"routing_iterations": 3, "softmax_over": softmax_over}
        assert_both_the_same(routed, x, kernel, **options)
        assert_both_the_same(ruled, x, z, kernel, **options)


# Numbers: types and ranges


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_float64_and_bfloat16(name):
    x, z, kernel = data(name, "float64", gain=0.3)
    options = {"routing_iterations": 4, "softmax_over": "outputs"}
    ours = assert_both_the_same(ruled, x, z, kernel, tolerance=1e-12, **options)
    assert ours[0][0].dtype == "float64"
    x, kernel = ops.cast(x, "float32"), ops.cast(kernel, "float32")
    expected = routed(EinsumMaps, x, kernel, **options)
    half = routed(BlockMaps, ops.cast(x, "bfloat16"), ops.cast(kernel, "bfloat16"), **options)
    assert half.z.dtype == expected.z.dtype
    assert_same(half, expected, 2e-2)


@pytest.mark.parametrize("name", ["encoder", "decoder"])
@pytest.mark.parametrize("size", [0.0, 1e-20, 1e20])
def test_inputs_and_maps_of_any_size(name, size):
    x, _, kernel = data(name)
    options = {"routing_iterations": 3, "softmax_over": "outputs"}
    for x_size, kernel_size in ((size, 1.0), (1.0, size)):
        assert_both_the_same(routed, x_size * x, kernel_size * kernel, **options)
    some = ops.concatenate([size * x[:, :2], x[:, 2:]], axis=1)
    assert_both_the_same(routed, some, kernel, **options)
    some = ops.concatenate([size * kernel[:2], kernel[2:]], axis=0)
    if size < 1:  # maps below 1e-15 of the largest have no direction here
        assert np.isfinite(route(x, some, **options).z).all()
