"""The capsule decoder trained by the decoder rule."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import CapsuleDecoder, CapsulePoE
from keras_capsule_poe.functions import EinsumMaps, decoder_rule, squash, unsquash

J, E, I, D = 4, 3, 9, 5


def pairs(n=64, seed=0):
    """Expert capsules (n, J, E) and what fixed maps make of them, primary capsules (n, I, D)."""
    maps = 0.35 * np.random.default_rng(7).normal(size=(J, I, D, E))
    random = np.random.default_rng(seed)
    codes = np.asarray(squash(random.normal(size=(n, J, E))))
    z = np.einsum("jide,bje->bid", maps, codes)
    return codes.astype("float32"), np.asarray(squash(z)).astype("float32")


def decoder(learning_rate=0.5, momentum=0.5, layer=None, dtype=None, eager=True, **options):
    # The plain form is traced several times as fast; both give the same numbers.
    start = keras.initializers.RandomNormal(stddev=0.01, seed=1)
    layer = {"kernel_initializer": start, "implementation": "reference", **(layer or {})}
    model = CapsuleDecoder(CapsulePoE(I, D, dtype=dtype, **layer), dtype=dtype, **options)
    model.build((None, J, E))
    optimizer = keras.optimizers.SGD(learning_rate, momentum=momentum)
    # A few steps are run eagerly, which is quicker than tracing them first.
    model.compile(optimizer=optimizer, jit_compile=False, run_eagerly=eager)
    return model


def fit(model, data, passes=1, batch_size=32):
    """Trains on `passes` copies of the pairs in one epoch; gives its metrics."""
    data = [np.tile(part, (passes, 1, 1)) for part in data]
    history = model.fit(*data, batch_size=batch_size, epochs=1, verbose=0, shuffle=False).history
    return {name: values[-1] for name, values in history.items()}


def evaluate(model, data):
    return model.evaluate(*data, batch_size=len(data[0]), verbose=0, return_dict=True)


def test_learns_without_autodiff(no_autodiff):
    model = decoder(momentum=0.9, layer={"implementation": "fused"}, eager=False)
    held_out = pairs(seed=1)
    before = evaluate(model, held_out)
    fit(model, pairs(256), passes=15)
    after = evaluate(model, held_out)
    # Untrained maps decode nothing, a relative error of one.
    assert before["loss"] > 0.9
    assert after["loss"] < 0.4


def test_one_step_is_the_decoder_rule():
    codes, primaries = pairs(16)
    model = decoder(learning_rate=0.3, momentum=0.0, layer={"kernel_regularizer": "l2"})
    kernel = model.primaries.kernel.numpy()
    e = model.primaries.route(codes).coefficients
    gradient = np.asarray(decoder_rule(EinsumMaps(kernel), codes, unsquash(primaries), e).gradient)
    got = fit(model, (codes, primaries))
    expected = kernel + 0.3 * (gradient - 2 * 0.01 * kernel)
    # float32 sums of 16 images in another order.
    np.testing.assert_allclose(model.primaries.kernel, expected, rtol=1e-5, atol=1e-7)
    moved = np.linalg.norm(expected - kernel) / np.linalg.norm(expected)
    np.testing.assert_allclose(got["update_size"], moved, rtol=1e-3)


def test_the_loss_is_the_relative_error_of_the_decoded_capsules():
    codes, primaries = pairs()
    model = decoder()
    trained = fit(model, (codes, primaries))
    assert set(trained) == {"loss", "update_size"}
    decoded = np.asarray(model(codes))
    expected = np.sum((decoded - primaries) ** 2) / np.sum(primaries**2)
    # float32 sums.
    assert float(evaluate(model, (codes, primaries))["loss"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("primaries", [None, "CapsulePoE", keras.layers.Dense(3)])
def test_primaries_must_be_a_layer_of_them(primaries):
    with pytest.raises(ValueError, match="`primaries` must be a CapsulePoE.*Received: primaries="):
        CapsuleDecoder(primaries)


@pytest.mark.parametrize("which", [0, 1])
def test_the_loss_is_nan_when_an_input_is(which):
    data = [np.array(part) for part in pairs(32)]
    data[which][4, 1, 2] = np.nan
    assert np.isnan(decoder().train_on_batch(*data, return_dict=True)["loss"])


@pytest.mark.long
def test_float16_is_refused_and_bfloat16_trains():
    with pytest.raises(ValueError, match="float16.*Received: dtype='mixed_float16'"):
        CapsuleDecoder(CapsulePoE(I, D), dtype="mixed_float16")
    layer = {"implementation": "fused"}
    model = decoder(momentum=0.9, layer=layer, dtype="mixed_bfloat16", eager=False)
    fit(model, pairs(256), passes=10)
    assert evaluate(model, pairs(seed=1))["loss"] < 0.6
    assert model(pairs(3)[0]).dtype == "bfloat16"


def test_call_shapes_and_config():
    model = decoder(seed=8)
    codes = pairs(3)[0]
    assert model(codes).shape == (3, I, D) == model.compute_output_shape(codes.shape)
    copy = CapsuleDecoder.from_config(model.get_config())
    assert copy.get_config() == model.get_config() and copy.seed == 8
    older = {**model.get_config(), "keep": 2}
    assert CapsuleDecoder.from_config(older).get_config() == model.get_config()
    serialized = keras.saving.serialize_keras_object(model)
    assert serialized["registered_name"] == "keras_capsule_poe>CapsuleDecoder"


def test_save_and_load(tmp_path):
    model = decoder()
    fit(model, pairs())
    model.save(tmp_path / "decoder.keras")
    again = keras.saving.load_model(tmp_path / "decoder.keras")
    codes = pairs(5, seed=2)[0]
    assert np.array_equal(again(codes), model(codes))


def test_feature_scale_is_inside_the_rule_and_not_in_the_result():
    codes, primaries = pairs(16)
    scale = 3.0
    model = decoder(learning_rate=0.3, momentum=0.0, feature_scale=scale)
    kernel = model.primaries.kernel.numpy()
    route = model.primaries.route(codes)
    z = scale * np.asarray(unsquash(primaries))
    gradient = np.asarray(decoder_rule(EinsumMaps(kernel), codes, z, route.coefficients).gradient)
    # float32 through a squash.
    np.testing.assert_allclose(model(codes), squash(route.z / scale), rtol=1e-5, atol=1e-7)
    decoded = np.asarray(model(codes))
    loss = np.sum((decoded - primaries) ** 2) / np.sum(primaries**2)
    assert float(evaluate(model, (codes, primaries))["loss"]) == pytest.approx(loss, rel=1e-5)
    fit(model, (codes, primaries))
    expected = kernel + 0.3 * gradient
    np.testing.assert_allclose(model.primaries.kernel, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_feature_scale_that_is_not_positive_is_refused(scale):
    with pytest.raises(ValueError, match="`feature_scale` must be above zero.*Received"):
        CapsuleDecoder(CapsulePoE(I, D), feature_scale=scale)


def test_activity_makes_one_capsule_and_one_among_silent_ones_alike():
    model = decoder(activity=2.0)
    model.primaries.kernel.assign(
        np.random.default_rng(4).normal(size=model.primaries.kernel.shape)
    )
    codes = pairs(8)[0]
    codes[:, 1:] *= 1e-3
    alone = codes.copy()
    alone[:, 1:] = 0
    # The others weigh 1e-6 in all.
    np.testing.assert_allclose(model(codes), model(alone), atol=1e-4)
    assert not np.isnan(model(np.zeros_like(codes))).any()


@pytest.mark.filterwarnings("ignore::keras_capsule_poe.errors.TrainingWarning")
def test_offset_appends_the_length_and_learns_a_constant():
    """Codes of mean zero, all of whose primary capsules are one and the same."""
    random = np.random.default_rng(0)
    codes = np.zeros((256, J, E), "float32")
    direction = random.normal(size=(256, E))
    codes[:, 0] = 0.9 * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    constant = np.asarray(squash(random.normal(size=(1, I, D)))).astype("float32")
    data = codes, np.repeat(constant, 256, axis=0)
    assert decoder(offset=True).weigh(codes).shape == (256, J, E + 1)
    errors = {}
    for offset in (False, True):
        options = {"conditional": True, "feature_scale": 0.5, "eager": False}
        model = decoder(1.0, 0.9, offset=offset, **options)
        fit(model, data, passes=8)
        errors[offset] = evaluate(model, data)["loss"]
    assert errors[True] < 0.1 < 0.8 < errors[False]


def test_the_conditional_rule_is_the_delta_rule_of_damped_capsules():
    model = decoder(conditional=True, momentum=0.0, learning_rate=1.0)
    codes, primaries = pairs(16)
    kernel = np.array(model.primaries.kernel)
    z = np.asarray(unsquash(primaries))
    z_model = np.asarray(model.primaries.route(codes).z)
    e = np.asarray(model.primaries.route(codes).coefficients)
    score = [v / (1 + np.sum(v**2, axis=-1, keepdims=True)) for v in (z, z_model)]
    expected = 2 * np.einsum("bji,bid,bje->jide", e, score[0] - score[1], codes) / len(codes)
    fit(model, (codes, primaries), batch_size=16)
    np.testing.assert_allclose(model.primaries.kernel - kernel, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("activity", [-1, 0])
def test_an_activity_that_is_not_positive_is_refused(activity):
    with pytest.raises(
        ValueError, match="`activity` must be above zero or None. Received: activity="
    ):
        decoder(activity=activity)


def test_arrays_build_and_train_the_model():
    model = CapsuleDecoder(CapsulePoE(I, D, implementation="reference"), offset=True)
    model.compile(keras.optimizers.SGD(0.1), jit_compile=False, run_eagerly=True)
    assert fit(model, pairs(8))["update_size"] > 0
    assert model(pairs(3)[0]).shape == (3, I, D)
