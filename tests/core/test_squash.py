"""Squash and its inverse: known values, range, and what floating point allows."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_capsule_poe.functions import exponential_squash, length, probability, squash, unsquash

EPS = np.finfo("float64").eps


def directions(n, dim=3, seed=0):
    """Unit vectors (n, dim), float64."""
    v = np.random.default_rng(seed).normal(size=(n, dim))
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


def relative_error(got, expected):
    got, expected = np.asarray(got, "float64"), np.asarray(expected, "float64")
    return np.linalg.norm(got - expected, axis=-1) / np.linalg.norm(expected, axis=-1)


@pytest.mark.parametrize(
    "z, expected",
    [
        ([3.0, 4.0], [3 / 5 * 25 / 26, 4 / 5 * 25 / 26]),
        ([1.0, 0.0], [0.5, 0.0]),
        ([0.0, -0.5], [0.0, -0.2]),
        ([-2.0, 0.0], [-0.8, 0.0]),
        ([0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_known_values(z, expected):
    # Fractions of small integers: a few roundings, 1e-15 of numbers near one.
    np.testing.assert_allclose(squash(np.array(z)), expected, rtol=0, atol=1e-15)
    np.testing.assert_allclose(unsquash(np.array(expected)), z, rtol=0, atol=1e-14)


def test_matches_the_formula_of_the_paper():
    z = np.random.default_rng(0).normal(size=(50, 7))
    n = np.linalg.norm(z, axis=-1, keepdims=True)
    # The same dozen float64 operations in another order.
    np.testing.assert_allclose(squash(z), n**2 / (1 + n**2) * z / n, rtol=1e-14)
    x = z / n * np.random.default_rng(1).uniform(0.01, 0.99, size=n.shape)
    n = np.linalg.norm(x, axis=-1, keepdims=True)
    # 1 - |x| is at least 0.01 here, so it magnifies rounding a hundredfold at most.
    np.testing.assert_allclose(unsquash(x), np.sqrt(n / (1 - n)) * x / n, rtol=1e-13)


@pytest.mark.parametrize(
    "dtype, exponents",
    [
        # |x| = |z|^2/(1+|z|^2), and 1-|x| = 1/(1+|z|^2) keeps a relative precision of only
        # eps (1+|z|^2) once |x| is rounded. Above |z| = 1, 1e-6 is thus possible up to
        # |z| = 6e4 in float64 (eps 2e-16) and up to 3 in float32 (eps 1e-7). Towards zero the
        # limit is the exponent range: |x| = |z|^2 must stay a normal number.
        ("float64", (-8, 4)),
        ("float64", (-100, -88)),
        ("float32", (-12, 0)),
    ],
)
def test_unsquash_inverts_squash_over_twelve_orders_of_magnitude(dtype, exponents):
    size = np.logspace(*exponents, 121)
    z = (size[:, None] * directions(121)).astype(dtype)
    again = unsquash(squash(z))
    assert relative_error(again, z).max() < 1e-6


def test_the_inverse_loses_no_more_digits_than_rounding_x_takes():
    size = np.logspace(-8, 7, 200)
    z = size[:, None] * directions(200, seed=2)
    # Rounding |x| by eps changes log z by eps (1+|z|^2)/2; a few roundings of that size.
    assert np.all(relative_error(unsquash(squash(z)), z) < 4 * EPS * (1 + size**2))


def test_squash_inverts_unsquash():
    # This direction is well conditioned on all of (0, 1): 1 - |x| is exact near one.
    near_zero, near_one = np.logspace(-12, -0.1, 60), 1 - np.logspace(-12, -0.1, 60)
    size = np.concatenate([near_zero, near_one])
    x = size[:, None] * directions(120, seed=3)
    # |x| of a three-vector is itself rounded by eps, which 1/(1-|x|) magnifies in z and the
    # squash takes back: a few eps remain.
    assert relative_error(squash(unsquash(x)), x).max() < 20 * EPS


def test_the_length_is_the_probability_of_being_on():
    size = np.logspace(-6, 6, 61)
    z = size[:, None] * directions(61, dim=5)
    sigmoid = 1 / (1 + np.exp(-2 * np.log(size)))
    # exp(log) of numbers up to 1e12 costs log(1e12) = 28 eps.
    np.testing.assert_allclose(length(squash(z)), sigmoid, rtol=1e-14)
    np.testing.assert_allclose(probability(z), sigmoid, rtol=1e-14)


def test_direction_is_kept_and_length_grows():
    size = np.logspace(-3, 3, 50)
    u = directions(1)
    x = np.asarray(squash(size[:, None] * u))
    lengths = np.linalg.norm(x, axis=-1)
    assert np.all(np.diff(lengths) > 0) and lengths[-1] < 1
    # Unit vectors of three entries, rounded.
    np.testing.assert_allclose(x / lengths[:, None], np.repeat(u, 50, axis=0), atol=1e-15)


@pytest.mark.parametrize("function", [squash, unsquash])
def test_axis(function):
    x = 0.3 * np.random.default_rng(4).normal(size=(2, 5, 4)) / 2
    moved = np.moveaxis(np.asarray(function(np.moveaxis(x, 1, -1))), -1, 1)
    # The same sums in another order.
    np.testing.assert_allclose(function(x, axis=1), moved, rtol=1e-14)
    assert np.abs(moved - np.asarray(function(x))).max() > 1e-3


def test_gradients_match_finite_differences():
    random = np.random.default_rng(5)
    step = 1e-6
    for function, limit in ((squash, 3.0), (unsquash, 0.9)):
        for size in (1e-3, 0.3, limit):
            x, move = size * directions(1, 4), size * directions(1, 4, seed=1)
            weight = random.normal(size=(1, 4))
            with tf.GradientTape() as tape:
                at = tf.constant(x)
                tape.watch(at)
                value = ops.sum(weight * function(at))
            slope = np.sum(np.asarray(tape.gradient(value, at)) * move)
            ends = [np.sum(weight * np.asarray(function(x + s * step * move))) for s in (1, -1)]
            # Central differences: an error of step^2 = 1e-12 times third derivatives of up to
            # 1e3 near |x| = 1, and of eps/step = 2e-10.
            assert abs(slope - (ends[0] - ends[1]) / (2 * step)) < 1e-7 * max(1, abs(slope))


def test_jacobian_at_the_zero_vector_and_slope_there():
    with tf.GradientTape() as tape:
        z = tf.zeros((1, 3), "float64")
        tape.watch(z)
        x = squash(z)
    # |squash(z)| = |z|^2: the slope at zero is exactly zero.
    assert np.array_equal(tape.jacobian(x, z), np.zeros((1, 3, 1, 3)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_saturated_capsule_gives_a_long_vector(dtype):
    eps = np.finfo(dtype).eps
    x = np.array([[1.0, 0.0], [0.0, -1.0], [1 - eps, 0.0]], dtype)
    lengths = np.linalg.norm(np.asarray(unsquash(x), "float64"), axis=-1)
    # |x| is limited to 1 - 2 eps: sqrt((1 - 2 eps)/(2 eps)), rounded.
    np.testing.assert_allclose(lengths, np.sqrt((1 - 2 * eps) / (2 * eps)), rtol=1e-6)


@pytest.mark.parametrize("function", [squash, exponential_squash])
def test_whole_numbers_are_numbers(function):
    found = np.asarray(function(np.array([[3, 4]])))
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found, function(np.array([[3, 4]], "float32")))


@pytest.mark.parametrize("form", [squash, exponential_squash])
def test_vectors_without_a_length_in_their_type_keep_their_direction(form):
    """Rejects zeros for a vector of 3e38, whose length is infinite in float32."""
    z = np.array([[3e38] * 4, [3e38, 0, 0, -1.5e38], [3e19, 4e19, 0, 0]], "float32")
    with tf.GradientTape() as tape:
        value = tf.convert_to_tensor(z)
        tape.watch(value)
        found = form(value)
    wanted = z / np.linalg.norm(z.astype("float64"), axis=-1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert np.isfinite(tape.gradient(found, value)).all()
    # Other vectors have the numbers of before, bit by bit.
    usual = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")
    n = ops.convert_to_numpy(length(usual, keepdims=True))
    short = np.minimum(n, 1 / np.maximum(n, 1)) ** 2
    size = np.where(n > 1, 1, short) / (1 + short) if form is squash else -np.expm1(-n)
    exact = form is squash
    assert not exact or np.array_equal(form(usual), size * (usual / n))
