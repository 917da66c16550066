"""Units, routers and encoders of a user reach training, encoding and samples alike.

Rejected: a code of other units or of another router than those that training has, a part of an own
class that `fit` replaces by ours, classes that cannot work found after the autoencoder is trained.
"""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_capsule_poe as kcp
from keras_capsule_poe.errors import AnotherRun, BadUse, ConfigError
from keras_capsule_poe.functions import (
    BinaryUnits,
    CapsuleUnits,
    EinsumMaps,
    OnOffUnits,
    Router,
    direction,
)
from keras_capsule_poe.models.base.features import begin
from keras_capsule_poe.models.capsule_poe.encoder import build_encoder

pytestmark = pytest.mark.filterwarnings("ignore::keras_capsule_poe.errors.TrainingWarning")
register = keras.saving.register_keras_serializable("own")


class SteepUnits(OnOffUnits):
    def log_odds(self, z, axis=-1):
        return 2 * CapsuleUnits().log_odds(z, axis)

    def log_odds_gradient(self, z, upstream, axis=-1):
        return 2 * CapsuleUnits().log_odds_gradient(z, upstream, axis)


class TopTwo(Router):
    def compete(self, logits):
        last = ops.top_k(logits, 2)[0][..., -1:]
        return super().compete(ops.where(logits < last, -1e9, logits))


class Averaging(Router):
    """The coefficients of all iterations are the mean over the images."""

    def iterations(self, x):
        for logits, c, _ in super().iterations(x):
            c = ops.broadcast_to(ops.mean(c, axis=0, keepdims=True), ops.shape(c))
            yield logits, c, self.maps.up(c, x)


@register
class SteepPoE(kcp.CapsulePoE):
    units = SteepUnits()


@register
class BinaryPoE(kcp.CapsulePoE):
    units = BinaryUnits()


@register
class SteepSquashPoE(kcp.CapsulePoE):
    """Units as a subclass of ours would have them."""

    units = type("Same", (CapsuleUnits,), {})()


@register
class TopTwoPoE(kcp.CapsulePoE):
    router_class = TopTwo


@register
class OwnRouterPoE(kcp.CapsulePoE):
    def router(self, *arguments, **options):
        maps = EinsumMaps(self.kernel)
        return Averaging(maps, self.options, self.routing_bias, units=self.units)


@register
class PersistentEncoder(kcp.CapsuleEncoder):
    def build(self, input_shape):
        super().build(input_shape)
        start = keras.initializers.RandomUniform(-0.1, 0.1, seed=1)
        self.states = self.add_weight((7, *input_shape[1:]), start, trainable=False)

    def chain_starts(self):
        return self.states

    def chain_ends(self, x):
        self.states.assign(x)


EXPERTS = (SteepPoE, BinaryPoE, SteepSquashPoE, TopTwoPoE, OwnRouterPoE)


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).uniform(-0.3, 0.3, (8, 6, 4)).astype("float32")


@pytest.fixture(scope="module")
def images():
    return kcp.data.load_images("digits", limit=40).train.images


def built(kind, **options):
    start = keras.initializers.RandomNormal(stddev=0.5, seed=1)
    layer = kind(5, 3, kernel_initializer=start, activation_prior_weight=0.5, **options)
    layer.build((None, 6, 4))
    return layer


@pytest.mark.parametrize("implementation", ["reference", "fused"])
@pytest.mark.parametrize("kind", [kcp.CapsulePoE, *EXPERTS])
def test_training_and_encoding_route_alike(kind, implementation, x):
    layer = built(kind, implementation=implementation, softmax_over="outputs")
    coded, routed = layer.route(x), layer.router().route(x)
    for a, b in zip(coded, routed):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    z = layer.contrastive_divergence(x).z
    np.testing.assert_allclose(z, coded.z, rtol=1e-4, atol=1e-6)
    ours = built(kcp.CapsulePoE, implementation="reference", softmax_over="outputs").route(x).z
    is_other = kind not in (kcp.CapsulePoE, SteepSquashPoE)
    assert is_other == (not np.allclose(coded.z, ours, rtol=1e-3, atol=1e-5))
    uniform = layer.route(x, "uniform").coefficients
    np.testing.assert_allclose(uniform, np.full((8, 6, 5), 0.2), rtol=1e-6)
    if kind is TopTwoPoE:
        return  # Its coefficients jump.
    # Backpropagation gives the gradient of what is computed.
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(x)[..., 0])
    slope = tape.gradient(total, layer.kernel.value)
    step = 1e-2 * np.sign(np.asarray(slope))
    start = layer.kernel.numpy()
    ends = []
    for sign in (1, -1):
        layer.kernel.assign(start + sign * 0.1 * step)
        ends.append(float(tf.reduce_sum(layer(x)[..., 0])))
    assert (ends[0] - ends[1]) == pytest.approx(0.2 * float(np.sum(step * slope)), rel=0.05)


@pytest.mark.parametrize("kind", [SteepPoE, BinaryPoE])
def test_codes_have_the_probabilities_of_the_units(kind, x):
    model = kcp.CapsuleEncoder(built(kind))
    model.build(x.shape)
    wanted = kind.units.probability(model.experts.route(x).z)
    np.testing.assert_allclose(np.linalg.norm(model(x), axis=-1), wanted, rtol=1e-4, atol=1e-9)


def test_derived_units_are_those_of_our_closed_forms():
    class Ours(OnOffUnits):
        log_odds = CapsuleUnits.log_odds
        log_odds_gradient = CapsuleUnits.log_odds_gradient

    z = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    for name in ("mean", "score", "free_energy", "probability"):
        found, wanted = (getattr(units, name)(z) for units in (Ours(), CapsuleUnits()))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, err_msg=name)


def other(name, base=CapsuleUnits):
    """A class of units with one method changed."""

    def method(self, z, axis=-1):
        return 0.5 * getattr(base(), name)(z, axis)

    return type("Other", (base,), {name: method})


@pytest.mark.parametrize("name", ["mean", "score", "free_energy", "probability", "log_odds"])
def test_units_whose_methods_do_not_belong_together_are_refused(name):
    kind = type("OtherPoE", (kcp.CapsulePoE,), {"units": other(name)()})
    with pytest.raises(BadUse, match="`units` must have a `.*follows from its `log_odds`"):
        kcp.CapsuleEncoder(kind(3, 4))


@pytest.mark.parametrize("base", [kcp.CapsulePoE, Router])
def test_a_route_that_training_would_not_use_is_refused(base):
    with pytest.raises(TypeError, match="overrides `route`"):
        type("Other", (base,), {"route": lambda self, x: None})


def assembled(experts=SteepPoE):
    """A model of own classes whose weights are random."""
    autoencoder = kcp.ConvAutoencoder(filters=4)
    autoencoder.build((None, 20, 20, 1))
    primary = kcp.PrimaryCapsules(4)
    primary.build((None, *autoencoder.feature_shape))
    start = keras.initializers.RandomNormal(stddev=0.5, seed=1)
    encoder = PersistentEncoder(experts(3, 4, kernel_initializer=start))
    decoder = kcp.CapsuleDecoder(kcp.CapsulePoE(primary.capsules, 4))
    model = kcp.ProductOfExpertCapsules(autoencoder, primary, encoder, decoder)
    model.build((None, 20, 20, 1))
    return model


@pytest.mark.parametrize("kind", [SteepPoE, BinaryPoE])
def test_codes_and_samples_have_the_units_of_the_experts(kind, tmp_path):
    model, units = assembled(kind), kind.units
    model.save(tmp_path / "model.keras")
    model = kcp.load(tmp_path / "model.keras")
    images = np.random.default_rng(0).uniform(size=(9, 20, 20, 1)).astype("float32")
    z = np.asarray(model.encoder.experts.route(model.to_visible(images)).z)
    codes, found = model.encode(images), model.code(ops.convert_to_tensor(images))
    np.testing.assert_allclose(codes.probabilities, units.probability(z), rtol=1e-3, atol=1e-6)
    energy = np.asarray(units.free_energy(z)).sum(axis=-1)
    np.testing.assert_allclose(codes.free_energy, energy, rtol=1e-3)
    lengths = np.linalg.norm(np.asarray(found["experts"]), axis=-1)
    np.testing.assert_allclose(lengths, codes.probabilities, rtol=1e-3, atol=1e-6)
    noise = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    drawn = model.single_code(noise, np.zeros(5), np.arange(5) % 3, "prior")["capsules"]
    lengths = np.linalg.norm(np.asarray(drawn), axis=-1).max(axis=1)
    np.testing.assert_allclose(lengths, units.probability(noise), rtol=1e-3)


def test_parts_of_own_classes_are_settings():
    settings = assembled().settings
    assert settings.encoder.experts_class == "own>SteepPoE"
    assert settings.encoder.encoder_class == "own>PersistentEncoder"
    encoder = build_encoder(settings, 6)
    assert type(encoder) is PersistentEncoder and type(encoder.experts) is SteepPoE
    again = type(settings).from_dict(settings.to_dict())
    assert not again.differences(settings)


def test_persistent_chains_go_on_where_they_ended(x):
    model = PersistentEncoder(built(kcp.CapsulePoE))
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), jit_compile=False)
    model.build(x.shape)
    wanted = model.experts.contrastive_divergence(x, chains=model.states)
    kernel = model.experts.kernel.numpy()
    model.train_on_batch(x)
    np.testing.assert_allclose(model.states, wanted.reconstruction, rtol=1e-5, atol=1e-7)
    moved = model.experts.kernel.numpy() - kernel
    np.testing.assert_allclose(moved, 0.1 * np.asarray(wanted.gradient), rtol=1e-3, atol=1e-6)
    # A test moves none.
    states = model.states.numpy()
    model.evaluate(x, verbose=0)
    np.testing.assert_array_equal(model.states, states)


SIZED = {"capsules": 3, "encoder": {"dim": 4}, "autoencoder": {"filters": 8}}


@pytest.mark.long
def test_train_and_fit_go_on_with_own_classes(images, tmp_path):
    options = {**SIZED, "epochs": 1, "verbose": 0, "folder": tmp_path / "run"}
    own = {"experts_class": TopTwoPoE, "encoder_class": PersistentEncoder}
    model = kcp.train(images, **own, **options)
    assert type(model.encoder) is PersistentEncoder
    assert type(model.encoder.experts) is TopTwoPoE
    names = {"experts_class": "own>TopTwoPoE", "encoder_class": "own>PersistentEncoder"}
    again = kcp.train(images, **names, **options)
    np.testing.assert_array_equal(again.encoder.experts.kernel, model.encoder.experts.kernel)
    np.testing.assert_array_equal(kcp.load(tmp_path / "run").encoder.states, model.encoder.states)
    with pytest.raises(AnotherRun, match="other settings"):
        kcp.train(images, **options)
    parts = (model.autoencoder, model.primary, model.encoder)
    further = kcp.ProductOfExpertCapsules(*parts)
    further.fit(images, epochs=1, verbose=0)
    assert type(further.encoder) is PersistentEncoder
    np.testing.assert_array_equal(further.encoder.states, model.encoder.states)


def test_a_part_of_another_class_is_not_replaced():
    given = assembled().autoencoder
    mine = type("Mine", (kcp.ConvAutoencoder,), {})(filters=4)
    mine.build((None, 20, 20, 1))
    run = types.SimpleNamespace(goes_on=(), start={"autoencoder": mine})
    with pytest.raises(ConfigError, match="must be of the class that `fit` makes, ConvAuto"):
        begin(run, "autoencoder", given)


def test_train_takes_the_class_of_a_model(images, tmp_path):
    class Mine(kcp.ImageBoltzmannMachine):
        pass

    model = kcp.train(images, model=Mine, hidden=3, epochs=1, verbose=0)
    assert type(model) is Mine and model.settings.rbm.hidden == 3


class Unregistered(kcp.CapsulePoE):
    pass


@register
class OtherVisible(kcp.CapsulePoE):
    visible_units = BinaryUnits()


WRONG = [
    ({"experts_class": Unregistered}, ConfigError, "must be a class that .*registered"),
    ({"experts_class": 3}, ConfigError, "must be a class that is registered with Keras"),
    ({"experts_class": "own>None"}, ConfigError, "must be a subclass of CapsulePoE"),
    ({"experts_class": PersistentEncoder}, ConfigError, "must be a subclass of CapsulePoE"),
    ({"encoder_class": SteepPoE}, ConfigError, "must be a subclass of CapsuleEncoder"),
    ({"experts_class": OtherVisible}, BadUse, "`visible_units` must have the squash"),
]


@pytest.mark.parametrize("given, kind, match", WRONG)
def test_classes_that_cannot_work_are_refused_before_training(given, kind, match, images, tmp_path):
    with pytest.raises(kind, match=match):
        kcp.train(images, folder=tmp_path / "run", **given)
    assert not list(tmp_path.iterdir())


def test_a_decoder_of_other_primary_capsules_is_refused():
    with pytest.raises(BadUse, match="`units` must have the squash of `PrimaryCapsules`"):
        kcp.CapsuleDecoder(BinaryPoE(6, 4))


def test_direction_of_codes_is_that_of_whitened_pre_activations(x):
    model = kcp.CapsuleEncoder(built(SteepPoE))
    model.build(x.shape)
    z = np.asarray(model.experts.route(x).z)
    np.testing.assert_allclose(direction(model(x)), direction(z), rtol=1e-3, atol=1e-5)
