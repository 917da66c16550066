"""No function turns an extreme capsule into infinity or NaN, and none hides a NaN."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_capsule_poe import functions
from keras_capsule_poe.functions import (
    BlockMaps,
    CapsuleUnits,
    EinsumMaps,
    Router,
    RoutingOptions,
    contrastive_divergence,
    decoder_rule,
)

UNITS = CapsuleUnits()
VECTOR = {
    name: getattr(functions, name)
    for name in ("squash", "unsquash", "length", "direction", "probability", "free_energy")
} | {
    "log_odds": UNITS.log_odds,
    "expert_free_energy": UNITS.free_energy,
    "score": UNITS.score,
}
MAPS = {"reference": EinsumMaps, "fused": BlockMaps}
# Vectors (1, 1, 3): zero, one entry, mixed magnitudes, both signs.
SHAPES = {"axis": [0.0, 1.0, 0.0], "full": [1.0, -1.0, 0.5], "mixed": [1.0, 1e-3, -1e-6]}
SIZES = (0.0, 1e-30, 1e-20, 1e-10, 1.0, 1e10, 1e20, 1e30)
ROUTES = list(itertools.product(("reference", "fused"), ("cosine", "dot"), ("inputs", "outputs")))


def vectors():
    """Capsules (N, 1, 3) in float32 of every size and shape."""
    rows = [np.multiply(size, shape) for size in SIZES for shape in SHAPES.values()]
    return np.array(rows, "float32")[:, None]


def value_and_gradient(function, *arrays):
    """The value, and the gradients of its sum."""
    with tf.GradientTape() as tape:
        tensors = [tf.constant(array) for array in arrays]
        tape.watch(tensors)
        value = function(*tensors)
        total = sum(ops.sum(part) for part in tf.nest.flatten(value))
    return tf.nest.flatten(value), tape.gradient(total, tensors)


def routed(implementation, x, w, **options):
    options = {"routing_iterations": 3, "activation_prior_weight": 0.7, **options}
    if implementation == "fused":
        return functions.route(x, w, **options)
    return Router(EinsumMaps(w), RoutingOptions(**options)).route(x)


def assert_finite(tensors):
    for tensor in tensors:
        assert np.all(np.isfinite(np.asarray(tensor, "float32")))


@pytest.mark.some(3)
@pytest.mark.parametrize("name", VECTOR)
def test_values_and_gradients_are_finite_in_float32(name):
    # One vector at a time: a sum over the batch could itself overflow.
    for vector in vectors():
        value, gradient = value_and_gradient(VECTOR[name], vector[None])
        assert_finite([*value, *gradient])


@pytest.mark.parametrize("name", ["unsquash", "log_odds", "probability", "score", "squash"])
def test_values_and_gradients_are_finite_around_length_one(name):
    eps = np.finfo("float32").eps
    for size in (1 - 1e-3, 1 - 4 * eps, 1 - eps, 1.0, 1 + eps, 1.1):
        for shape in ([1.0, 0.0], [0.6, -0.8]):
            vector = np.multiply(size, shape).astype("float32")[None]
            value, gradient = value_and_gradient(VECTOR[name], vector)
            assert_finite([*value, *gradient])


@pytest.mark.parametrize("name", VECTOR)
def test_nan_propagates(name):
    vector = np.ones((2, 2, 3), "float32")
    vector[1, 0, 1] = np.nan
    for function in (VECTOR[name], tf.function(VECTOR[name], autograph=False)):
        got = np.asarray(function(vector))
        assert np.all(np.isfinite(got[0]))
        hit = got[1] if name == "free_energy" else got[1, 0]
        assert np.all(np.isnan(hit))


@pytest.mark.parametrize("name", VECTOR)
def test_an_infinite_entry_is_not_hidden(name):
    got = np.asarray(VECTOR[name](np.array([[[np.inf, 1.0]]], "float32")))
    assert not np.all(np.isfinite(got))


@pytest.mark.parametrize("name", ["squash", "unsquash", "score"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_vectors_keep_their_dtype(name, dtype):
    x = np.random.default_rng(0).normal(size=(20, 4)) / 5
    got = VECTOR[name](ops.cast(x, dtype))
    assert got.dtype == dtype
    exact = np.asarray(VECTOR[name](x))
    # Rounding on the way in and on the way out, each half a unit in the last place, the first
    # magnified by up to 4 where |x| is near 0.9.
    unit = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
    error = np.linalg.norm(np.asarray(ops.cast(got, "float64")) - exact, axis=-1)
    assert np.all(error < 4 * unit[dtype] * np.linalg.norm(exact, axis=-1))


@pytest.mark.parametrize("name", ["length", "direction", "log_odds", "free_energy"])
def test_scalars_of_half_precision_are_float32(name):
    # 300^2 overflows float16, and bfloat16 cannot add 1 to 256.
    for dtype in ("bfloat16", "float16"):
        got = VECTOR[name](ops.cast(np.full((1, 1, 4), 300.0), dtype))
        assert got.dtype == "float32"
        assert_finite([got])


def test_known_extremes():
    # Rounding of float32, a few units of 6e-8.
    z = np.array([[3e20, 4e20], [3e-20, 4e-20], [3e30, -4e30]], "float32")
    np.testing.assert_allclose(functions.length(z), [5e20, 5e-20, 5e30], rtol=3e-7)
    np.testing.assert_allclose(
        functions.direction(z), [[0.6, 0.8], [0.6, 0.8], [0.6, -0.8]], rtol=3e-7
    )
    logs = 2 * np.log([5e20, 5e-20, 5e30])
    np.testing.assert_allclose(UNITS.log_odds(z), logs, rtol=3e-7)
    np.testing.assert_allclose(UNITS.free_energy(z), [-logs[0], 0, -logs[2]], rtol=3e-7, atol=1e-30)
    np.testing.assert_allclose(functions.probability(z), [1, 0, 1], atol=1e-30)


def test_the_pull_of_a_very_long_vector_is_twice_its_inverse():
    # 2 z/(1+|z|^2) = 2/z at these sizes, a normal float32 throughout; a few units of 6e-8.
    for size in (1e5, 1e15, 1e18, 1e20, 1e30):
        got = np.asarray(UNITS.score(np.array([[size, 0.0]], "float32")))
        np.testing.assert_allclose(got, [[2 / size, 0.0]], rtol=1e-6)


@pytest.mark.some(3)
@pytest.mark.parametrize("implementation, kind, softmax_over", ROUTES)
def test_routing_is_finite(implementation, kind, softmax_over):
    random = np.random.default_rng(0)
    capsules = np.asarray(functions.squash(random.normal(size=(2, 4, 3)))).astype("float32")
    capsules[0, 0] = 0
    maps = random.normal(size=(4, 3, 2, 3)).astype("float32")
    maps[1] = 0
    # Sizes whose product float32 can hold; inputs of length one are the usual case.
    for x_size, w_size in ((1, 0), (0, 1), (1, 1e-20), (1e-20, 1), (1, 1e20), (1e20, 1)):

        def form(x, w):
            return routed(implementation, x, w, agreement=kind, softmax_over=softmax_over)

        value, gradient = value_and_gradient(form, capsules * x_size, maps * w_size)
        assert_finite([*value, *gradient])


@pytest.mark.parametrize("implementation, kind, softmax_over", ROUTES)
def test_routing_passes_on_a_nan_and_only_within_its_image(implementation, kind, softmax_over):
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 4, 3)).astype("float32")
    x[1, 2, 0] = np.nan
    maps = random.normal(size=(4, 3, 2, 3)).astype("float32")
    c, z = routed(implementation, x, maps, agreement=kind, softmax_over=softmax_over)
    for result in (c, z):
        isnan = np.isnan(np.asarray(result)).reshape(3, -1)
        assert isnan[1].all() and not isnan[[0, 2]].any()


@pytest.mark.parametrize("implementation", ["reference", "fused"])
@pytest.mark.parametrize("size", [0.0, 1e-20, 1.0, 1e18])
def test_divergences_are_finite(implementation, size):
    random = np.random.default_rng(2)
    x = np.asarray(functions.squash(random.normal(size=(2, 4, 3)).astype("float32"))).copy()
    x[0, 1] = 0
    maps = (size * random.normal(size=(4, 3, 2, 3))).astype("float32")
    c = random.uniform(size=(2, 4, 3)).astype("float32")
    assert_finite(contrastive_divergence(MAPS[implementation](maps), x, c)[:4])
    z = (size * random.normal(size=(2, 3, 2))).astype("float32")
    assert_finite(decoder_rule(MAPS[implementation](maps), x, z, c)[:4])
