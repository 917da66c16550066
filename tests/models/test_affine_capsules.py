"""Affine capsules in layers and models: training, saving, and the half-spheres they draw from."""

import keras
import numpy as np
import pytest

from keras_capsule_poe import CapsuleDecoder, CapsuleEncoder, CapsulePoE, NeuronPoE
from keras_capsule_poe.functions import decoder_rule, squash, unsquash
from keras_capsule_poe.models.capsule_poe.product import from_chart

I, D, J, E = 10, 4, 5, 3


def layer(capsules=J, dim=E, **options):
    start = keras.initializers.RandomNormal(stddev=0.3, seed=1)
    bias = keras.initializers.RandomNormal(stddev=0.5, seed=2)
    options = {"kernel_initializer": start, "use_bias": True, "bias_initializer": bias, **options}
    return CapsulePoE(capsules, dim, implementation="reference", **options)


def primaries(n=32, seed=0):
    z = np.random.default_rng(seed).normal(size=(n, I, D))
    return np.asarray(squash(z.astype("float32")))


def compiled(model, shape, rate=0.1):
    model.build((None, *shape))
    model.compile(keras.optimizers.SGD(rate), jit_compile=False, run_eagerly=True)
    return model


def fit(model, *data):
    return model.fit(*data, batch_size=len(data[0]), epochs=1, verbose=0, shuffle=False)


def test_one_step_of_the_encoder_moves_the_bias_at_its_own_rate_and_decays_nothing(no_autodiff):
    experts = layer(kernel_regularizer=keras.regularizers.L2(0.5))
    model = compiled(CapsuleEncoder(experts, bias_rate=30.0), (I, D))
    x, before = primaries(), experts.bias.numpy()
    step = experts.contrastive_divergence(x)
    fit(model, x)
    # float32 sums of 32 images.
    expected = before + 0.1 * 30 * np.asarray(step.hidden_bias)
    np.testing.assert_allclose(experts.bias, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(experts.bias - before).max() > 0.01


@pytest.mark.parametrize("conditional", [False, True])
def test_one_step_of_the_decoder(conditional, no_autodiff):
    layer_of = layer(I, D)
    model = CapsuleDecoder(layer_of, bias_rate=2.0, conditional=conditional, feature_scale=0.5)
    model = compiled(model, (J, E))
    codes, x = primaries()[:, :J, :E], primaries(seed=1)
    before, z = layer_of.bias.numpy(), 0.5 * np.asarray(unsquash(x))
    router = layer_of.router()
    step = decoder_rule(router.maps, codes, z, routing=router, conditional=conditional)
    decoded = np.asarray(model(codes))
    np.testing.assert_allclose(decoded, squash(2 * np.asarray(step.z_model)), rtol=1e-4, atol=1e-6)
    fit(model, codes, x)
    expected = before + 0.1 * 2 * np.asarray(step.hidden_bias)
    np.testing.assert_allclose(layer_of.bias, expected, rtol=1e-5, atol=1e-6)
    # Without codes the bias decodes.
    np.testing.assert_allclose(
        model(np.zeros((1, J, E), "float32"))[0], squash(layer_of.bias / 0.5), rtol=1e-5
    )


def test_both_implementations_are_the_same_and_routing_off_keeps_the_bias():
    plain = layer(activation_prior_weight=0.5)
    streamed = CapsulePoE.from_config({**plain.get_config(), "implementation": "fused"})
    x = primaries()
    for one in (plain, streamed):
        one.build(x.shape)
    for coefficients in (None, "uniform"):
        a, b = (one.route(x, coefficients).z for one in (plain, streamed))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # float32
    zero = plain.route(np.zeros_like(x), "uniform").z
    np.testing.assert_array_equal(zero, np.broadcast_to(plain.bias, zero.shape))
    a, b = (one.contrastive_divergence(x) for one in (plain, streamed))
    np.testing.assert_allclose(a.hidden_bias, b.hidden_bias, rtol=1e-3, atol=1e-5)


def test_save_and_load(tmp_path):
    model = compiled(CapsuleEncoder(layer(), bias_rate=3.0), (I, D))
    fit(model, primaries())
    model.save(tmp_path / "encoder.keras")
    again = keras.saving.load_model(tmp_path / "encoder.keras")
    assert again.bias_rate == 3 and again.experts.use_bias
    x = primaries(5, seed=2)
    assert np.array_equal(again(x), model(x)) and np.array_equal(
        again.experts.bias, model.experts.bias
    )


def test_off_there_is_no_bias_and_older_files_load():
    off = layer(use_bias=False)
    off.build((None, I, D))
    assert off.bias is None and [w.name for w in off.weights] == ["kernel"]
    older = {k: v for k, v in off.get_config().items() if not k.startswith(("use_bias", "bias_"))}
    assert CapsulePoE.from_config(older).use_bias is False
    with pytest.raises(ValueError, match="`use_bias` must be False.*Received: True"):
        NeuronPoE(3, 2, use_bias=True)
    with pytest.raises(ValueError, match="`bias_rate` must be a number above 0.*Received"):
        CapsuleEncoder(off, bias_rate=0.0)


def test_the_chart_covers_half_of_the_sphere_one_to_one():
    random = np.random.default_rng(0)
    noise, pole = random.normal(size=(2000, E)), np.array([0.3, -2.0, 1.0])
    drawn = np.asarray(from_chart(noise, np.broadcast_to(pole, noise.shape)))
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1, rtol=1e-12)
    unit = pole / np.linalg.norm(pole)
    along = drawn @ unit
    assert along.min() > 0
    # Back in the chart it is the noise across the pole, standard Gaussian of two dimensions.
    back = drawn / along[:, None] - unit
    np.testing.assert_allclose(back, noise - np.outer(noise @ unit, unit), atol=1e-9)
    spread = np.linalg.eigvalsh(np.cov(back.T))
    np.testing.assert_allclose(spread, [0, 1, 1], atol=4 * np.sqrt(2 / 2000))
    np.testing.assert_allclose(  # no pole: the whole sphere
        from_chart(noise, 0 * noise), noise / np.linalg.norm(noise, axis=1)[:, None], rtol=1e-12
    )


def test_affine_capsules_without_frames_are_drawn_from_their_half_sphere(small_product):
    model = small_product(use_bias=True)
    bias = np.asarray(model.encoder.experts.bias)
    codes = model.draw(200, 0, "single", "prior")
    own = np.asarray(codes["capsules"])[np.arange(200), codes["capsule"]]
    # The small product has frames: turned codes have no pole, and fill the sphere.
    assert np.mean(np.sum(own * bias[codes["capsule"]], axis=-1) > 0) < 0.7
    model.encoder.whitening.center.assign(np.zeros((5, 3)))
    model.encoder.whitening.whitening.assign(np.tile(np.eye(3), (5, 1, 1)))
    half = np.asarray(model.draw(200, 0, "single", "prior")["capsules"])
    own_half = half[np.arange(200), codes["capsule"]]
    assert (np.sum(own_half * bias[codes["capsule"]], axis=-1) > 0).all()
    lengths = [np.linalg.norm(part, axis=-1) for part in (own, own_half)]
    np.testing.assert_allclose(*lengths, rtol=1e-5)
