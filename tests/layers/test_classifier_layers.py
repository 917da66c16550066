"""Layers of supervised capsules against NumPy in float64; saved and loaded.

Rejected: capsules cut across places or out of strided channels; a bias that is divided with the
convolution; the squash of one capsule's numbers over another axis; coefficients that are uniform
over the inputs; a decoder that is not of the flat capsules.
"""

import h5py
import keras
import numpy as np
import pytest

from keras_capsule_poe import (
    ConvCapsules,
    ConvDecoder,
    DenseDecoder,
    MarginLoss,
    RoutingLayer,
    SelfAttentionRouting,
    Squash,
)

RANDOM = keras.initializers.RandomNormal(stddev=0.3, seed=1)


def values(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def squashed(z):
    n = np.linalg.norm(z, axis=-1, keepdims=True)
    return n / (1 + n**2) * z


@pytest.mark.parametrize("padding, strides", [("valid", 2), ("same", 2), ("valid", 1)])
@pytest.mark.parametrize("divide", [False, True])
def test_primary_capsules_are_a_convolution_cut_up(padding, strides, divide):
    layer = ConvCapsules(
        3,
        2,
        kernel_size=3,
        strides=strides,
        padding=padding,
        divide=divide,
        kernel_initializer=RANDOM,
        bias_initializer=RANDOM,
    )
    x = values((2, 7, 6, 4))
    found = np.asarray(layer(x))
    kernel, bias = (np.asarray(part, "float64") for part in (layer.kernel, layer.bias))
    expected, rows, columns = [], 7, 6
    if padding == "same":  # stride 2: 7 rows need one on each side, 6 columns one at the end
        x = np.pad(x, ((0, 0), (1, 1), (0, 1), (0, 0)))
        rows, columns = x.shape[1:3]
    for i in range(0, rows - 2, strides):
        for j in range(0, columns - 2, strides):
            z = np.einsum("bhwc,hwcf->bf", x[:, i : i + 3, j : j + 3], kernel)
            z = z / (3 if divide else 1) + bias
            expected += [squashed(z[:, 2 * t : 2 * t + 2]) for t in range(3)]
    # Sums of 36 products in float32.
    np.testing.assert_allclose(found, np.stack(expected, axis=1), rtol=1e-4, atol=1e-5)
    assert layer.compute_output_shape((None, 7, 6, 4)) == (None, *found.shape[1:])


def test_self_attention_and_its_control():
    x = squashed(values((3, 6, 4)))
    options = {"kernel_initializer": RANDOM, "bias_initializer": RANDOM}
    layers = [
        SelfAttentionRouting(5, 8, **options),
        SelfAttentionRouting(5, 8, implementation="reference", **options),
    ]
    streamed, plain = (np.asarray(layer(x)) for layer in layers)
    np.testing.assert_allclose(streamed, plain, rtol=1e-4, atol=1e-6)
    assert layers[0].compute_output_shape((None, 6, 4)) == (None, 5, 8)
    kernel, bias = (np.asarray(part, "float64") for part in (layers[0].kernel, layers[0].bias))
    votes = np.einsum("bid,ijed->bije", x, kernel)
    powers = np.exp(np.einsum("bije,bkje->bij", votes, votes) / np.sqrt(8))
    shares = powers / powers.sum(axis=2, keepdims=True)

    def capsules(shares):
        z = np.einsum("bij,bije->bje", shares + bias, votes)
        n = np.linalg.norm(z, axis=-1, keepdims=True)
        return (1 - np.exp(-n)) * z / n

    np.testing.assert_allclose(streamed, capsules(shares), rtol=1e-4, atol=1e-6)
    control = SelfAttentionRouting(5, 8, routing="uniform", **options)
    expected = capsules(np.full_like(shares, 0.2))
    np.testing.assert_allclose(control(x), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(control.route(x).coefficients[1], 0.2 + bias, rtol=1e-5)
    assert np.abs(expected - streamed).max() > 1e-3
    assert control.count_params() == layers[0].count_params() == 6 * 5 * (8 * 4 + 1)


def test_shared_weights_take_any_number_of_inputs():
    options = {"agreement": "projection", "logits": "replaced", "shared_weights": True}
    layer, plain = (
        RoutingLayer(5, 3, kernel_initializer=RANDOM, implementation=form, **options)
        for form in ("fused", "reference")
    )
    for inputs in (2, 9):
        x = values((3, inputs, 4), seed=inputs)
        found = np.asarray(layer(x))
        np.testing.assert_allclose(found, plain(x), rtol=1e-4, atol=1e-6)
        order = np.random.default_rng(0).permutation(inputs)
        np.testing.assert_allclose(layer(x[:, order]), found, rtol=1e-4, atol=1e-6)
    assert layer.kernel.shape == (1, 5, 3, 4)
    symbolic = layer(keras.Input((None, 4)))
    assert symbolic.shape == (None, 5, 3)
    with pytest.raises(ValueError, match="needs capsules.*Received"):
        layer.compute_output_shape((None, 5, None))


def test_dense_decoder():
    decoder = DenseDecoder((3, 4, 2), units=(5, 6), kernel_initializer=RANDOM)
    capsules = values((2, 3, 4))
    found, x = np.asarray(decoder(capsules)), capsules.reshape(2, 12).astype("float64")
    for layer in decoder.dense[:-1]:
        x = np.maximum(x @ np.asarray(layer.kernel) + np.asarray(layer.bias), 0)
    last = decoder.dense[-1]
    x = 1 / (1 + np.exp(-(x @ np.asarray(last.kernel) + np.asarray(last.bias))))
    np.testing.assert_allclose(found, x.reshape(2, 3, 4, 2), rtol=1e-4)
    # 160-512-1024-784 of the paper.
    assert DenseDecoder((28, 28, 1)).compute_output_shape((None, 10, 16)) == (None, 28, 28, 1)


def test_layers_of_one_decoder_start_from_different_numbers():
    decoder = DenseDecoder((2, 2, 1), units=(4, 4))
    decoder.build((None, 2, 2))
    first, second = (np.asarray(layer.kernel) for layer in decoder.dense[:2])
    assert np.abs(first - second).max() > 0.01


@pytest.mark.parametrize("shape", [(28, 28, 1), (9, 13, 3)])
def test_convolutional_decoder(shape):
    decoder = ConvDecoder(shape, filters=4)
    found = np.asarray(decoder(values((2, 3, 4))))
    assert found.shape == (2, *shape) == decoder.compute_output_shape((2, 3, 4))
    assert found.min() > 0 and found.max() < 1


def whole():
    inputs = keras.Input((12, 11, 2))
    x = ConvCapsules(2, 4, kernel_size=3, divide=True)(inputs)
    x = RoutingLayer(6, 5, leaky=True, agreement="dot", use_bias=True)(x)
    x = Squash("exponential")(x)
    x = RoutingLayer(4, 5, shared_weights=True, logits="replaced")(x)
    x = SelfAttentionRouting(3, 4)(x)
    return keras.Model(inputs, [DenseDecoder((4, 4, 1), (8,))(x), ConvDecoder((5, 4, 1), 4)(x)])


def test_all_of_them_are_saved_and_loaded_in_safe_mode(tmp_path):
    model = whole()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    x = values((2, 12, 11, 2))
    for one, other in zip(model(x), again(x)):
        np.testing.assert_array_equal(one, other)
    for layer in again.layers:
        assert layer.get_config() == model.get_layer(layer.name).get_config()


def test_they_train_in_half_precision():
    """The streamed gradients are those of float32, whatever the layers compute in."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = whole()
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    targets = [np.ones((2, 4, 4, 1)), np.ones((2, 5, 4, 1))]
    losses = [model.train_on_batch(values((2, 12, 11, 2)), targets)[0] for _ in range(3)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


def test_official_scaling_is_half_of_the_mean():
    labels, lengths = np.array([[1.0, 0, 1, 0]]), np.array([[0.4, 0.3, 0.95, 0.05]])
    by_sum = 0.5**2 + 0.5 * 0.2**2
    np.testing.assert_allclose(MarginLoss()(labels, lengths), by_sum, rtol=1e-6)
    official = MarginLoss(scaling="official")
    np.testing.assert_allclose(official(labels, lengths), by_sum / 4 / 2, rtol=1e-6)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(official))
    assert copy.scaling == "official"


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda: ConvCapsules(0), "types"),
        (lambda: ConvCapsules(2, padding="full"), "padding"),
        (lambda: ConvCapsules(2, kernel_size=5)(values((1, 4, 4, 1))), "kernel_size"),
        (lambda: SelfAttentionRouting(2, 3, routing="none"), "routing"),
        (lambda: Squash("cubic"), "kind"),
        (lambda: DenseDecoder((3, 4)), "image_shape"),
        (lambda: MarginLoss(scaling="mean"), "scaling"),
    ],
)
def test_bad_arguments_are_refused(make, name):
    with pytest.raises(ValueError, match=rf"`{name}` must .*Received: "):
        make()


class Tenths(keras.initializers.Initializer):
    """Of a program that registers nothing."""

    def __call__(self, shape, dtype=None):
        return keras.ops.full(shape, 0.1, dtype)


@pytest.mark.parametrize("start", [Tenths(), lambda shape, dtype=None: Tenths()(shape, dtype)])
@pytest.mark.parametrize("kind", [DenseDecoder, ConvDecoder])
def test_decoders_start_from_what_any_layer_does(kind, start):
    decoder = kind((4, 4, 1), kernel_initializer=start)
    decoder.build((None, 2, 3))
    kernels = [weight for weight in decoder.weights if weight.name == "kernel"]
    assert len(kernels) >= 3 and all(
        np.all(np.asarray(kernel) == np.float32(0.1)) for kernel in kernels
    )


def test_files_call_its_convolutions_as_older_ones_do(tmp_path):
    """Rejects the name of a class that older files do not have: they could not be read."""
    model = keras.Sequential([keras.Input((2, 3)), ConvDecoder((4, 4, 1), 4)])
    model.save_weights(tmp_path / "model.weights.h5")
    with h5py.File(tmp_path / "model.weights.h5") as file:
        assert sorted(file["layers/conv_decoder/convolutions"]) == [
            "conv2d_transpose", "conv2d_transpose_1",
        ]  # fmt: skip
