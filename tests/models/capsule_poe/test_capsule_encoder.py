"""The capsule encoder trained by its hand-derived update."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import CapsuleEncoder, CapsulePoE, ConvAutoencoder
from keras_capsule_poe.functions import (
    EinsumMaps,
    contrastive_divergence,
    free_energy,
    probability,
    squash,
)

I, D, J, E = 10, 4, 5, 3
METRICS = {
    "loss",
    "free_energy",
    "probability_mean",
    "probability_spread",
    "orientation_concentration",
    "update_size",
    "rarest_usage",
}


def primaries(n=64, seed=0):
    """Squashed capsules (n, I, D): one of three patterns, scaled, and noise."""
    patterns = np.random.default_rng(7).normal(size=(3, I, D))
    random = np.random.default_rng(seed)
    z = random.uniform(0.5, 1.0, (n, 1, 1)) * patterns[random.integers(3, size=n)] * 0.5
    return np.asarray(squash((z + 0.05 * random.normal(size=z.shape)).astype("float32")))


def encoder(learning_rate=1.0, momentum=0.5, layer=None, dtype=None, eager=True, **options):
    # The plain form is traced several times as fast; both give the same numbers.
    start = keras.initializers.RandomNormal(stddev=0.1, seed=1)
    layer = {"kernel_initializer": start, "implementation": "reference", **(layer or {})}
    model = CapsuleEncoder(CapsulePoE(J, E, dtype=dtype, **layer), dtype=dtype, **options)
    model.build((None, I, D))
    optimizer = keras.optimizers.SGD(learning_rate, momentum=momentum)
    # A few steps are run eagerly, which is quicker than tracing them first.
    model.compile(optimizer=optimizer, jit_compile=False, run_eagerly=eager)
    return model


def fit(model, x, passes=1, batch_size=32):
    """Trains on `passes` copies of x in one epoch; gives its metrics."""
    x = np.tile(x, (passes, 1, 1))
    history = model.fit(x, batch_size=batch_size, epochs=1, verbose=0, shuffle=False).history
    return {name: values[-1] for name, values in history.items()}


def evaluate(model, x):
    return model.evaluate(x, batch_size=len(x), verbose=0, return_dict=True)


def test_learns_without_autodiff(no_autodiff):
    x, held_out = primaries(), primaries(seed=1)
    # Autodiff is indeed shut: an ordinary training step fails.
    ordinary = ConvAutoencoder(filters=1)
    ordinary.build((None, 20, 20, 1))
    ordinary.compile(optimizer="sgd", loss="mse", jit_compile=False)
    with pytest.raises(AssertionError, match="autodiff was called"):
        ordinary.fit(np.zeros((1, 20, 20, 1), "float32"), verbose=0)

    model = encoder(layer={"implementation": "fused"}, eager=False)
    before = evaluate(model, held_out)
    fit(model, x, passes=40)
    after = evaluate(model, held_out)
    # Untrained maps reproduce nothing, a relative error of one.
    assert before["loss"] > 0.9
    assert after["loss"] < 0.4
    assert after["free_energy"] < before["free_energy"] - 1


@pytest.mark.parametrize("cd_steps", [1, 3])
def test_one_step_is_the_update_of_algorithm_1(cd_steps):
    x = primaries(16)
    layer = {"kernel_regularizer": "l2"}
    model = encoder(learning_rate=0.3, momentum=0.0, layer=layer, cd_steps=cd_steps)
    kernel = model.experts.kernel.numpy()
    c = model.experts.route(x).coefficients
    divergence = contrastive_divergence(EinsumMaps(kernel), x, c, cd_steps=cd_steps)
    gradient = np.asarray(divergence.gradient)
    got = fit(model, x)
    expected = kernel + 0.3 * (gradient - 2 * 0.01 * kernel)
    # float32 sums of 16 images in another order; the update is 1e-2 of the maps.
    np.testing.assert_allclose(model.experts.kernel, expected, rtol=1e-5, atol=1e-6)
    moved = np.linalg.norm(expected - kernel) / np.linalg.norm(expected)
    np.testing.assert_allclose(got["update_size"], moved, rtol=1e-3)


def test_metrics():
    x = primaries()
    model = encoder()
    trained = fit(model, x, batch_size=len(x))
    assert set(trained) == METRICS
    z = np.asarray(model.experts.route(x).z)
    p = np.asarray(probability(z))
    codes = np.asarray(squash(z))
    share = np.mean(p / p.sum(axis=1, keepdims=True), axis=0)
    resultant = np.linalg.norm(codes.sum(axis=0), axis=-1) / p.sum(axis=0)
    relative = np.asarray(model.experts.mean_field_step(x)) - x
    got = evaluate(model, x)
    # float32 in another order.
    expected = {
        "loss": np.sum(relative**2) / np.sum(x**2),
        "free_energy": np.mean(free_energy(z)),
        "probability_mean": p.mean(),
        "probability_spread": p.std(axis=0).mean(),
        "orientation_concentration": resultant.mean(),
        "rarest_usage": J * share.min(),
    }
    assert set(got) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-7, err_msg=name)
    assert trained["update_size"] > 0


def test_evaluation_changes_nothing():
    model = encoder(layer={"use_routing_bias": True}, load_balancing=0.1)
    before = model.get_weights()
    evaluate(model, primaries())
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), before, strict=True))


def test_learning_rate_zero_leaves_the_maps_unchanged():
    model = encoder(learning_rate=0.0, layer={"kernel_regularizer": "l2"})
    before = model.experts.kernel.numpy()
    got = fit(model, primaries(), passes=2)
    assert np.array_equal(model.experts.kernel, before)
    assert got["update_size"] == 0 and np.isfinite(got["loss"])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_loss_is_nan_when_an_input_is_not_finite(value):
    x = primaries(32).copy()
    x[3, 2, 1] = value
    model = encoder()
    with pytest.raises(ValueError, match="`x` must have finite values. Received: NaN or inf"):
        fit(model, x)
    assert np.isnan(model.train_on_batch(x, return_dict=True)["loss"])


def test_the_loss_is_nan_when_the_update_overflows():
    model = encoder(learning_rate=1e38, momentum=0.9, layer={"kernel_regularizer": "l2"})
    model.experts.kernel.assign(tf.fill(model.experts.kernel.shape, 1e10))
    assert np.isnan(fit(model, primaries(32))["loss"])


@pytest.mark.long
def test_load_balancing_raises_the_rarest_usage():
    x = primaries(96)
    options = {"activation_prior_weight": 1.0, "use_routing_bias": True, "coefficient_sum": 5.0}
    rarest = {}
    for balance in (0.0, 0.05):
        model = encoder(learning_rate=0.05, load_balancing=balance, layer=options, eager=False)
        fit(model, x, passes=30)
        rarest[balance] = evaluate(model, x)["rarest_usage"]
        moved = np.any(np.asarray(model.experts.routing_bias) != 0)
        assert moved == bool(balance)
    assert rarest[0.05] > rarest[0.0] + 0.1


def test_the_bias_moves_by_how_far_usage_is_from_even():
    x = primaries(32)
    model = encoder(learning_rate=0.0, load_balancing=0.1, layer={"use_routing_bias": True})
    p = np.asarray(model.experts.probability(x))
    usage = np.mean(p / p.sum(axis=1, keepdims=True), axis=0)
    fit(model, x)
    # float32.
    np.testing.assert_allclose(model.experts.routing_bias, 0.1 * (1 - J * usage), atol=1e-6)
    # Usages add up to one, so that the biases keep their mean.
    assert abs(np.mean(model.experts.routing_bias)) < 1e-6


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="use_routing_bias=True.*Received: load_balancing=0.1"):
        CapsuleEncoder(CapsulePoE(J, E), load_balancing=0.1)
    with pytest.raises(ValueError, match="`cd_steps` must be a positive integer"):
        CapsuleEncoder(CapsulePoE(J, E), cd_steps=0)


@pytest.mark.parametrize("experts", [None, "CapsulePoE", keras.layers.Dense(3)])
def test_experts_must_be_a_layer_of_them(experts):
    match = "`experts` must be a CapsulePoE layer. Received: experts="
    with pytest.raises(ValueError, match=match):
        CapsuleEncoder(experts)


def test_two_runs_with_one_seed_are_identical():
    x = primaries()
    weights = []
    for _ in range(2):
        layer = {"use_routing_bias": True, "implementation": "fused"}
        model = encoder(layer=layer, load_balancing=0.03, seed=4)
        fit(model, x, passes=2)
        weights.append(model.get_weights())
    assert all(np.array_equal(a, b) for a, b in zip(*weights, strict=True))


def test_float16_is_refused_and_bfloat16_trains():
    match = "float16.*mixed_bfloat16.*Received: dtype='mixed_float16'"
    with pytest.raises(ValueError, match=match):
        CapsuleEncoder(CapsulePoE(J, E), dtype="mixed_float16")
    model = encoder(dtype="mixed_bfloat16", layer={"implementation": "fused"}, eager=False)
    fit(model, primaries(), passes=20)
    assert model.experts.kernel.dtype == "float32"
    assert model(primaries(3)).dtype == "bfloat16"
    assert evaluate(model, primaries())["loss"] < 0.6


def test_schedules_of_the_learning_rate():
    schedule = keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5)
    model = encoder(learning_rate=schedule, momentum=0.0)
    fit(model, primaries(64), batch_size=32)
    assert float(model.optimizer.learning_rate) == 0.25


def test_call_shapes_and_config():
    model = encoder(
        layer={"activation_prior_weight": 0.5, "use_routing_bias": True},
        load_balancing=0.02,
        cd_steps=3,
        seed=9,
    )
    x = primaries(3)
    assert model(x).shape == (3, J, E) == model.compute_output_shape(x.shape)
    assert np.array_equal(model(x), model.experts(x))
    copy = CapsuleEncoder.from_config(model.get_config())
    assert copy.get_config() == model.get_config()
    assert (copy.load_balancing, copy.cd_steps, copy.seed) == (0.02, 3, 9)
    # As older versions wrote it.
    older = {**model.get_config(), "prior_start": 0.1, "prior_steps": 7}
    assert CapsuleEncoder.from_config(older).get_config() == model.get_config()
    serialized = keras.saving.serialize_keras_object(model)
    assert serialized["registered_name"] == "keras_capsule_poe>CapsuleEncoder"


def test_save_and_load(tmp_path):
    model = encoder(layer={"use_routing_bias": True}, load_balancing=0.05)
    fit(model, primaries())
    model.save(tmp_path / "encoder.keras")
    again = keras.saving.load_model(tmp_path / "encoder.keras")
    x = primaries(5, seed=2)
    assert np.array_equal(again(x), model(x))
    assert np.any(np.asarray(again.experts.routing_bias))


def test_starting_from_images():
    model = encoder()
    x = primaries(J * E, seed=3)
    model.start_from_images(x, 0.7)
    kernel = np.asarray(model.experts.kernel)
    for j in range(J):
        for e in range(E):
            image = x[j * E + e]
            # float32.
            np.testing.assert_allclose(
                kernel[:, j, e], 0.7 * image / np.linalg.norm(image), rtol=1e-5, atol=1e-7
            )
    model.start_from_images(np.zeros_like(x), 0.7)
    assert not np.any(np.asarray(model.experts.kernel))


@pytest.mark.some(3)
@pytest.mark.parametrize("momentum", [0.5, 0.0])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_policies_of_one_type_train(dtype, momentum):
    model = encoder(0.1, momentum, dtype=dtype, layer={"kernel_regularizer": "l2"})
    assert np.isfinite(fit(model, primaries(8))["loss"])
    assert model.experts.kernel.dtype == dtype == model(primaries(3)).dtype
