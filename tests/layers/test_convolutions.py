"""Layers with a fast form in training against the Keras layers that they extend.

Rejected: training with another bias, activation or padding; arguments that the fast form does not
know and that it would leave out; a model file that comes back as the Keras layer; a bias whose
gradient stays at 256 ones in half precision.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe import ConvCapsules, ConvDecoder, FastConv2D, FastConv2DTranspose

RANDOM = keras.initializers.RandomNormal(stddev=0.1, seed=1)


def values(shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def pair(kind, theirs, *args, **kwargs):
    """Ours and the Keras layer, with the same numbers."""
    options = {"kernel_initializer": RANDOM, "bias_initializer": RANDOM, **kwargs}
    return kind(*args, **options), theirs(*args, **options)


@pytest.mark.parametrize(
    "kind, theirs, shape, arguments, options",
    [
        (FastConv2D, keras.layers.Conv2D, (2, 20, 20, 64), (96, 9), {"strides": 2}),
        (FastConv2D, keras.layers.Conv2D, (2, 15, 20, 64), (64, 5), {"padding": "same"}),
        (FastConv2D, keras.layers.Conv2D, (2, 20, 20, 64), (96, 9), {"strides": (2, 1)}),
        (FastConv2D, keras.layers.Conv2D, (2, 20, 20, 64), (64, 5), {"groups": 2}),
        (FastConv2D, keras.layers.Conv2D, (2, 20, 20, 64), (64, 5), {"dilation_rate": 2}),
        (FastConv2D, keras.layers.Conv2D, (2, 20, 20, 64), (64, 9), {"use_bias": False}),
        (FastConv2DTranspose, keras.layers.Conv2DTranspose, (2, 6, 7, 96), (64, 9),
         {"strides": 2}),
        (FastConv2DTranspose, keras.layers.Conv2DTranspose, (2, 6, 7, 96), (64, 9),
         {"strides": 2, "padding": "same"}),
        (FastConv2DTranspose, keras.layers.Conv2DTranspose, (2, 6, 7, 96), (64, 9),
         {"strides": 2, "output_padding": 1}),
        (FastConv2DTranspose, keras.layers.Conv2DTranspose, (2, 19, 18, 64), (1, (8, 7)), {}),
    ],
)  # fmt: skip
def test_training_gives_the_numbers_of_the_keras_layer(kind, theirs, shape, arguments, options):
    ours, plain = pair(kind, theirs, *arguments, activation="relu", **options)
    x = values(shape)
    expected = np.asarray(plain(x))
    np.testing.assert_array_equal(ours(x), expected)
    found = np.asarray(ours(x, training=True))
    assert found.shape == expected.shape == tuple(ours.compute_output_shape(shape))
    assert np.abs(found - expected).max() < 2e-4 * expected.std()


def test_the_usual_arguments_take_the_fast_form():
    layers = [
        (FastConv2D(96, 9, strides=2), (2, 20, 20, 64)),
        (FastConv2DTranspose(64, 9, strides=2), (2, 6, 6, 96)),
        (FastConv2DTranspose(1, 7), (2, 20, 20, 64)),
        (ConvCapsules(12, 8), (2, 20, 20, 64)),
    ]
    for layer, shape in layers:
        x = values(shape)
        trained, used = np.asarray(layer(x, training=True)), np.asarray(layer(x))
        assert 0 < np.abs(trained - used).max() < 2e-4 * used.std()


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="by TensorFlow's tape")
@pytest.mark.parametrize(
    "make, shape",
    [
        (lambda how: FastConv2D(3, 3, **how), (4, 20, 20, 2)),
        (lambda how: FastConv2D(3, 3, dilation_rate=2, **how), (4, 20, 20, 2)),
        (lambda how: FastConv2DTranspose(3, 3, 2, "same", **how), (4, 10, 10, 2)),
        (lambda how: ConvDecoder((20, 20, 3), 8, **how).convolutions[0], (4, 10, 10, 2)),
        (lambda how: ConvDecoder((20, 20, 3), 8, **how).last, (4, 20, 20, 2)),
    ],
)
def test_a_bias_of_half_precision_has_a_gradient_of_all_places(make, shape):
    import tensorflow as tf

    layer = make({"dtype": "mixed_bfloat16"})
    layer.activation = None
    layer.build((None, *shape[1:]))
    with tf.GradientTape() as tape:
        y = layer(values(shape), training=True)
        total = tf.reduce_sum(tf.cast(y, "float32"))
    # Each number of a map adds one; bfloat16 has eight bits.
    places = np.prod(y.shape) / layer.bias.shape[0]
    assert y.dtype == "bfloat16" and places > 1000
    np.testing.assert_allclose(tape.gradient(total, layer.bias.value), places, rtol=0.01)


def test_a_model_file_keeps_the_layer(tmp_path):
    layers = [keras.Input((20, 20, 64)), FastConv2D(64, 9, strides=2)]
    model = keras.Sequential([*layers, FastConv2DTranspose(32, 9, strides=2)])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [type(layer) for layer in loaded.layers] == [FastConv2D, FastConv2DTranspose]
    x = values((2, 20, 20, 64))
    np.testing.assert_array_equal(model(x), loaded(x))
