"""A function over a long array, and the one conversion of pixels."""

import numpy as np

from keras_capsule_poe.data import sequential_batches
from keras_capsule_poe.data.mapping import map_batches, to_pixels

BYTES = np.arange(256, dtype=np.uint8).reshape(256, 1, 1, 1)


def test_pixels_are_the_correctly_rounded_quotients_and_those_of_the_stream():
    (streamed,) = sequential_batches(BYTES, 256).as_numpy_iterator()
    pixels = to_pixels(BYTES)
    assert pixels.dtype == np.float32
    # Exact: one division of float32, rounded to the nearest, is the quotient in float64 rounded.
    assert np.array_equal(pixels, (BYTES / np.float64(255)).astype(np.float32))
    assert np.array_equal(pixels, streamed)
    assert np.array_equal(pixels, map_batches(lambda x: x, BYTES, chunk=100))


def test_floats_are_pixels_already():
    units = np.array([0.0, 0.25, 1.0])
    assert to_pixels(units).dtype == np.float32
    assert to_pixels(units).tolist() == [0.0, 0.25, 1.0]


def test_results_are_those_of_the_whole():
    for n in [1, 4, 5, 11]:
        rows = np.random.default_rng(0).normal(size=(n, 3)).astype("float32")
        got = map_batches(lambda x: x * 2, rows, chunk=4)
        assert np.array_equal(got, rows * 2)


def test_a_dict_of_results_is_a_dict_of_arrays():
    rows = np.arange(10, dtype="float32").reshape(5, 2)
    got = map_batches(lambda x: {"double": 2 * x, "sum": x[:, 0] + x[:, 1]}, rows, chunk=2)
    assert np.array_equal(got["double"], 2 * rows)
    assert np.array_equal(got["sum"], rows.sum(axis=1))


def test_a_function_is_traced_for_whole_chunks_and_for_the_rest():
    traced = []

    def watched(x):
        traced.append(tuple(x.shape))
        return x

    for n, shapes in [(8, [(4, 3)]), (3, [(3, 3)]), (0, [(None, 3)]), (11, [(4, 3), (None, 3)])]:
        traced.clear()
        map_batches(lambda x: watched(x), np.zeros((n, 3), "float32"), chunk=4)
        assert traced == shapes


def test_no_rows_give_no_results_of_the_right_shape():
    rows = np.zeros((0, 28, 28, 1), np.uint8)
    got = map_batches(lambda x: {"rows": x[:, ::2], "top": x[:, 0, 0, 0] > 0}, rows)
    assert got["rows"].shape == (0, 14, 28, 1)
    assert got["rows"].dtype == np.float32
    assert got["top"].shape == (0,)
    assert got["top"].dtype == bool


def test_a_keras_layer_is_a_function():
    import keras

    layer = keras.layers.Conv2D(2, 3)
    layer.build((None, 8, 8, 1))
    rows = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1), dtype=np.uint8)
    whole = keras.ops.convert_to_numpy(layer(to_pixels(rows)))
    # float32 sums of 9 products, maybe in another order for another batch size.
    np.testing.assert_allclose(map_batches(layer, rows, chunk=2), whole, rtol=1e-5, atol=1e-6)
    assert map_batches(layer, rows[:0]).shape == (0, 6, 6, 2)
