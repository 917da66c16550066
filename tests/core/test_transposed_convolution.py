"""A transposed convolution by laying down filters, against the sum that defines it, in float64.

Rejected: filters turned round; rows and columns exchanged; channels exchanged; a last row or
column that is left out; gradients of the convolution that it is not the transpose of.
"""

import numpy as np
import pytest
from keras import ops

from keras_capsule_poe.core.fused.convolution import convolve, lay_down, pays, transposed

# Height and width, taps, channels and filters all differ.
SHAPES = [((4, 6), (5, 7), 2, 3), ((1, 1), (5, 5), 1, 4), ((3, 2), (1, 26), 3, 2)]


def values(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def by_definition(y, kernel):
    """Each number of y lays down its filters, one place after another."""
    (rows, columns, channels, _), (images, height, width, _) = kernel.shape, y.shape
    x = np.zeros((images, height + rows - 1, width + columns - 1, channels))
    for i in range(height):
        for j in range(width):
            laid = np.einsum("bo,klco->bklc", y[:, i, j], kernel)
            x[:, i : i + rows, j : j + columns] += laid
    return x


@pytest.mark.parametrize("sizes, taps, channels, filters", SHAPES)
def test_maps_and_both_gradients_are_those_of_the_sum(sizes, taps, channels, filters):
    import tensorflow as tf

    y = tf.constant(values((2, *sizes, filters)))
    kernel = tf.constant(values((*taps, channels, filters), seed=1))
    with tf.GradientTape() as tape:
        tape.watch([y, kernel])
        x = lay_down(y, kernel)
        weights = values(x.shape, seed=2)
        loss = tf.reduce_sum(weights * x)
    # Sums of less than two hundred products of numbers of about one: 1e-13 is their rounding.
    np.testing.assert_allclose(x, by_definition(y.numpy(), kernel.numpy()), atol=1e-12)
    # It is linear in each: <w, F(y, k)> for a step of each number alone.
    found = tape.gradient(loss, [y, kernel])
    for number, (gradient, value) in enumerate(zip(found, (y.numpy(), kernel.numpy()))):
        arguments = [y.numpy(), kernel.numpy()]
        expected = np.zeros(value.shape)
        for place in np.ndindex(*value.shape):
            one = np.zeros(value.shape)
            one[place] = 1.0
            arguments[number] = one
            expected[place] = np.sum(weights * by_definition(*arguments))
        np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_it_is_taken_in_training_where_channels_are_few():
    y = values((3, 19, 19, 128)).astype("float32")
    few, many = (values((10, 10, c, 128), seed=1).astype("float32") for c in (1, 8))
    for kernel, is_taken in ((few, True), (many, False)):
        plain = ops.convert_to_numpy(transposed(y, kernel))
        quick = ops.convert_to_numpy(transposed(y, kernel, fast=True))
        assert pays(kernel.shape, 1) == is_taken == bool(np.abs(plain - quick).max() > 0)
        # Sums of 12,800 products, in another order.
        assert np.abs(plain - quick).max() < 1e-5 * plain.std()
    exact = by_definition(y.astype("float64"), few.astype("float64"))
    errors = [np.abs(transposed(y, few, fast=fast) - exact).max() for fast in (True, False)]
    assert errors[0] < 2 * errors[1]


@pytest.mark.parametrize(
    "strides, kernel", [(2, (9, 9, 1, 96)), (1, (3, 3, 1, 96)), (1, (5, 5, 2, 49))]
)
def test_steps_small_filters_and_much_memory_are_not_for_it(strides, kernel):
    assert not pays(kernel, strides)
    y = values((2, 5, 5, kernel[-1])).astype("float32")
    kernel = values(kernel, seed=1).astype("float32")
    plain = ops.convert_to_numpy(transposed(y, kernel, strides))
    if strides == 1:
        np.testing.assert_array_equal(transposed(y, kernel, strides, fast=True), plain)
    assert plain.shape == (2, *(2 * [strides * 4 + len(kernel)]), kernel.shape[2])


def test_half_precision_is_computed_in_full_and_rounded():
    y, kernel = (values(shape).astype("float32") for shape in ((2, 5, 5, 32), (5, 5, 1, 32)))
    half = [ops.cast(tensor, "bfloat16") for tensor in (y, kernel)]
    found = transposed(*half, fast=True)
    full = transposed(*(ops.cast(tensor, "float32") for tensor in half), fast=True)
    assert found.dtype == "bfloat16"
    np.testing.assert_array_equal(
        *(ops.cast(ops.cast(x, "bfloat16"), "float32") for x in (found, full))
    )


def test_an_unknown_number_of_images():
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((None, 5, 6, 32), tf.float32)])
    def graph(y):
        return transposed(y, ops.ones((5, 5, 1, 32)), fast=True)

    for images in (0, 3):
        assert graph(np.ones((images, 5, 6, 32), "float32")).shape == (images, 9, 10, 1)


PROGRAM = """
import numpy as np
from keras import ops
from keras_capsule_poe.core.fused.convolution import transposed
random = np.random.default_rng(0)
y, kernel, weights = (
    ops.convert_to_tensor(random.normal(size=shape), dtype="float32")
    for shape in ((2, 4, 3, 96), (5, 6, 2, 96), (2, 8, 8, 2))
)

def loss(y, kernel, fast):
    return ops.sum(weights * transposed(y, kernel, fast=fast) ** 2)

def gradients(fast):
    if keras.backend.backend() == "jax":
        import jax
        return jax.grad(loss, (0, 1))(y, kernel, fast)
    leaves = [x.detach().requires_grad_() for x in (y, kernel)]
    loss(*leaves, fast).backward()
    return [x.grad for x in leaves]

pairs = zip([loss(y, kernel, True), *gradients(True)], [loss(y, kernel, False), *gradients(False)])
for quick, plain in pairs:
    quick, plain = ops.convert_to_numpy(quick), ops.convert_to_numpy(plain)
    # Sums of less than three thousand products, in another order.
    np.testing.assert_allclose(quick, plain, rtol=1e-4, atol=1e-4 * abs(plain).max())
"""


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.long), "torch"])
def test_gradients_on_other_backends(run_on, backend):
    run_on(backend, PROGRAM)


def test_it_is_the_transpose_of_the_convolution():
    y, kernel = values((2, 5, 4, 3)), values((5, 6, 2, 3), seed=1)
    x = values((2, 9, 9, 2), seed=2)
    there = np.sum(np.asarray(lay_down(y, kernel)) * x)
    back = np.sum(y * np.asarray(convolve(x, kernel)))
    np.testing.assert_allclose(there, back, rtol=1e-12)
