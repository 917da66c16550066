"""Convolutions by few multiplications against the sum that defines them, in float64.

Rejected: points that are used twice; fractions on one side only; residue classes of a stride that
are taken for another; a last tile that reaches beyond the map and wraps; rows and columns
exchanged; zeros of "same" padding on the wrong side; the transpose without its padding; sums in
half precision.
"""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_capsule_poe.core.fused.convolution import (
    HALF,
    MOST_PRODUCTS,
    SINGLE,
    FastConvolution,
    axis,
    convolve,
    fast_convolution,
    strided,
    toom_cook,
    transposed,
)
from keras_capsule_poe.core.numerics import on_processor

# Rows and columns differ; 1, 2 and 3 outputs of the last tiles are not there.
SHAPES = [((20, 20), 9, 2), ((17, 24), 9, 2), ((14, 9), 5, 1), ((11, 16), 4, 3), ((9, 8), 3, 1)]


def values(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def by_definition(x, kernel, stride):
    """Σ over the window, for each place on its own."""
    taps, (height, width) = kernel.shape[0], x.shape[1:3]
    return np.stack(
        [
            np.stack(
                [
                    np.einsum("bhwc,hwco->bo", x[:, i : i + taps, j : j + taps], kernel)
                    for j in range(0, width - taps + 1, stride)
                ],
                axis=1,
            )
            for i in range(0, height - taps + 1, stride)
        ],
        axis=1,
    )


def fast(sizes, taps, stride, limits=SINGLE):
    return FastConvolution(*(axis(size, taps, stride, limits) for size in sizes))


@pytest.mark.parametrize("outputs", range(1, MOST_PRODUCTS))
def test_a_correlation_takes_as_many_products_as_it_has_outputs_and_taps_but_one(outputs):
    for taps in range(1, MOST_PRODUCTS + 2 - outputs):
        a, g, b = toom_cook(outputs, taps)
        k, d = values(taps), values(outputs + taps - 1)
        assert len(a) == len(g) == len(b) == outputs + taps - 1
        # Powers of two up to the ninth cost three of sixteen digits.
        np.testing.assert_allclose(a.T @ ((g @ k) * (b @ d)), np.correlate(d, k), atol=1e-11)


@pytest.mark.parametrize("outputs, taps", [(0, 3), (5, 7)])
def test_more_products_than_are_accurate_are_refused(outputs, taps):
    with pytest.raises(ValueError, match=f"outputs={outputs}, taps={taps}"):
        toom_cook(outputs, taps)


@pytest.mark.parametrize("outputs, taps, stride", [(3, 9, 2), (2, 4, 3), (4, 1, 2), (1, 5, 5)])
def test_a_stride_takes_the_taps_apart(outputs, taps, stride):
    a, g, b = strided(outputs, taps, stride)
    k, d = values(taps), values(stride * (outputs - 1) + taps)
    expected = [k @ d[stride * o : stride * o + taps] for o in range(outputs)]
    np.testing.assert_allclose(a.T @ ((g @ k) * (b @ d)), expected, atol=1e-11)


@pytest.mark.parametrize("limits", [SINGLE, HALF], ids=["single", "half"])
@pytest.mark.parametrize("sizes, taps, stride", SHAPES)
def test_maps_and_both_gradients_are_those_of_the_sum(sizes, taps, stride, limits):
    x, kernel = values((2, *sizes, 3)), values((taps, taps, 3, 4), seed=1)
    convolution = fast(sizes, taps, stride, limits)
    expected = by_definition(x, kernel, stride)
    np.testing.assert_allclose(convolution(x, kernel), expected, atol=1e-9)
    # Both are linear: <y, F(x, k)> is <F'(y, k), x>, and its gradient in k that of any other k.
    y = values(expected.shape, seed=2)
    back = np.asarray(convolution.transpose(y, kernel))
    other = values(x.shape, seed=3)
    np.testing.assert_allclose(
        np.sum(back * other), np.sum(y * by_definition(other, kernel, stride)), rtol=1e-9
    )
    assert back.shape == x.shape


@pytest.mark.parametrize("sizes, taps, stride", SHAPES)
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow differentiates")
def test_autodiff_through_it_gives_the_gradients_of_the_plain_form(sizes, taps, stride):
    import tensorflow as tf

    x, kernel = tf.constant(values((2, *sizes, 3))), tf.constant(values((taps, taps, 3, 4), 1))
    convolution, found = fast(sizes, taps, stride), []
    for form in (convolution, lambda x, k: tf.nn.conv2d(x, k, stride, "VALID")):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            y = form(x, kernel)
            loss = tf.reduce_sum(y * values(y.shape, seed=2))
        found.append(tape.gradient(loss, [x, kernel]))
    for ours, plain in zip(*found, strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-9)


# The largest errors, as a share of the outputs' deviation. Half precision rounds at 4e-3.
@pytest.mark.parametrize("limits, most", [(SINGLE, 1e-4), (HALF, 2e-3)], ids=["single", "half"])
def test_float32_keeps_its_digits(limits, most):
    # As behind a ReLU.
    x = np.maximum(values((4, 20, 20, 64)), 0).astype("float32")
    kernel = values((9, 9, 64, 96), seed=1).astype("float32")
    exact = by_definition(x.astype("float64"), kernel.astype("float64"), 2)
    found = np.asarray(fast((20, 20), 9, 2, limits)(x, kernel))
    assert np.abs(found - exact).max() < most * exact.std()


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("taps, strides", [(9, 2), (5, 1)])
def test_the_fast_form_is_taken_where_it_pays_and_gives_the_same(padding, taps, strides):
    assert on_processor()
    x = values((2, 15, 20, 64)).astype("float32")
    kernel = values((taps, taps, 64, 96), seed=1).astype("float32")
    plain, ours = (convolve(x, kernel, strides, padding, fast=which) for which in (False, True))
    plain, ours = np.asarray(plain), np.asarray(ours)
    assert ours.shape == plain.shape
    # Not the same bits: it is another computation.
    assert 0 < np.abs(ours - plain).max() < 2e-4 * plain.std()
    if padding == "valid":
        back = [np.asarray(transposed(plain, kernel, strides, fast=f)) for f in (False, True)]
        assert back[0].shape == back[1].shape
        assert 0 < np.abs(back[1] - back[0]).max() < 2e-4 * back[0].std()


@pytest.mark.parametrize(
    "sizes, kernel_shape, strides",
    [
        ((28, 28), (9, 9, 1, 256), 1),  # one channel
        ((20, 20), (9, 9, 256, 256), 1),  # more products than are accurate
        ((28, 28), (1, 1, 256, 256), 1),  # nothing to save
        ((8, 8), (9, 9, 256, 256), 2),  # no output
    ],
)
def test_it_is_not_taken_where_it_does_not_pay(sizes, kernel_shape, strides):
    assert fast_convolution(sizes, kernel_shape, strides) is None


def rounded(array):
    """Numbers that bfloat16 has, as such and in float64."""
    half = ops.cast(array, "bfloat16")
    return half, np.asarray(ops.cast(half, "float32")).astype("float64")


def as_float64(y):
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    return np.asarray(ops.cast(y, "float32")).astype("float64")


def test_half_precision_rounds_what_is_computed_in_float32():
    x, exact_x = rounded(np.maximum(values((2, 19, 19, 64)), 0))
    kernel, exact_kernel = rounded(values((9, 9, 64, 96), seed=1))
    exact = by_definition(exact_x, exact_kernel, 2)
    found = as_float64(convolve(x, kernel, 2, fast=True))
    # Half a unit of eight bits, and what ten products cost; not the bits of the plain form.
    np.testing.assert_allclose(found, exact, rtol=2**-8, atol=2e-3 * exact.std())
    assert (found != as_float64(convolve(x, kernel, 2))).any()
    y, exact_y = rounded(values(exact.shape, seed=2))
    back = as_float64(transposed(y, kernel, 2, fast=True))
    other = values(exact_x.shape, seed=3)
    whole = np.sum(exact_y * by_definition(other, exact_kernel, 2))
    assert np.sum(back * other) == pytest.approx(whole, abs=2**-8 * np.linalg.norm(back * other))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow differentiates")
def test_gradients_in_half_precision_are_no_worse_than_those_of_the_plain_form():
    import tensorflow as tf

    x, exact_x = rounded(np.maximum(values((4, 19, 19, 64)), 0))
    kernel, exact_kernel = rounded(values((9, 9, 64, 96), seed=1) / 9)
    upstream, exact_upstream = rounded(values((4, 6, 6, 96), seed=2))

    def gradients(form, x, kernel, upstream):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            y = form(x, kernel)
        return tape.gradient(y, [x, kernel], upstream)

    exact = gradients(
        lambda x, k: tf.nn.conv2d(x, k, 2, "VALID"),
        *map(tf.constant, (exact_x, exact_kernel, exact_upstream)),
    )
    forms = (functools.partial(convolve, strides=2, fast=which) for which in (True, False))
    ours, plain = (gradients(form, x, kernel, upstream) for form in forms)
    for a, b, truth in zip(ours, plain, exact, strict=True):
        errors = [np.abs(as_float64(g) - truth.numpy()).max() for g in (a, b)]
        assert errors[0] < 1.1 * errors[1]


def test_half_precision_pays_by_its_own_limit():
    def quick(sizes, kernel_shape, strides, dtype):
        limits = HALF if dtype == "bfloat16" else SINGLE
        return fast_convolution(sizes, kernel_shape, strides, limits)

    # Padded to the same size by two rows and columns on each side.
    shape = (32, 32), (5, 5, 64, 64), 1
    assert quick(*shape, "float32").share(64, 64) < 0.5 and quick(*shape, "bfloat16") is None
    large = (19, 19), (9, 9, 128, 128), 2
    # Ten products for six outputs, where eight are for three.
    ratio = quick(*large, "bfloat16").share(128, 128) / quick(*large, "float32").share(128, 128)
    assert ratio == pytest.approx((19 / 26) ** 2)
