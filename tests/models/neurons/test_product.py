"""Product of expert neurons: codes, draws, chains and densities, with each kind of routing.

Wrong versions that these tests reject: a capsule drawn with the others on, draws that depend on
each other, chains that lose their routing, joint draws that are not of the model, nats of features
not sent.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from keras_capsule_poe import (
    ConvAutoencoder,
    NeuronExperts,
    NeuronMixture,
    NeuronMixtureExperts,
    NeuronPoE,
    PrimaryCapsules,
    ProductOfExpertNeurons,
)
from keras_capsule_poe.core.harmonium import flattened
from keras_capsule_poe.data import ImageData, ImageSet
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.likelihood import likelihood, likelihood_text
from keras_capsule_poe.functions import enumerated_log_partition
from keras_capsule_poe.models.neurons import product as draws

J, E = 3, 4


def whole(routing):
    """A built product whose maps and statistics are not tiny."""
    keras.utils.set_random_seed(1)
    autoencoder = ConvAutoencoder(filters=8)
    autoencoder.build((None, 20, 20, 1))
    primary = PrimaryCapsules(4, target_length=2.0)
    primary.adapt([np.asarray(autoencoder.encode(pixels(50)), "float32")])
    if routing == "mixture":
        experts = NeuronMixtureExperts(NeuronMixture(J, E))
    else:
        experts = NeuronExperts(NeuronPoE(J, E, routing=routing, implementation="reference"))
    model = ProductOfExpertNeurons(autoencoder, primary, experts, posterior_states=5, joint_steps=3)
    model.build((None, 20, 20, 1))
    layer, random = model.layer, np.random.default_rng(2)
    layer.kernel.assign(0.3 * random.normal(size=layer.kernel.shape))
    layer.mean_coefficients.assign(random.uniform(size=layer.mean_coefficients.shape))
    model.posteriors.assign(random.uniform(size=model.posteriors.shape))
    return model


def uint8(n, seed=0):
    return np.random.default_rng(seed).integers(256, size=(n, 20, 20, 1)).astype("uint8")


def pixels(n, seed=0):
    return (uint8(n, seed) / 255).astype("float32")


def images():
    return ImageData(ImageSet(uint8(50)), ImageSet(uint8(20, seed=1)))


@pytest.fixture(scope="module", params=["per_image", "averaged", "latent"])
def product(request):
    return whole(request.param)


def test_codes_lie_in_the_unit_ball(product):
    code = product.code(pixels(7))
    lengths = np.linalg.norm(code["capsules"], axis=-1)
    assert lengths.max() < 1
    np.testing.assert_allclose(lengths, code["probabilities"], atol=1e-6)


def test_a_code_with_features_is_both(product):
    found = product.featured_code(pixels(7))
    np.testing.assert_array_equal(found.pop("features"), product.to_features(pixels(7)))
    expected = product.code(pixels(7))
    assert set(found) == set(expected)
    for name, rows in expected.items():
        np.testing.assert_array_equal(found[name], rows)


@pytest.mark.parametrize("domain", ["prior", "uniform", "posterior"])
def test_single_codes_are_of_one_capsule(product, domain):
    drawn = product.draw(9, seed=1, mode="single", domain=domain)
    codes, capsule = np.asarray(drawn["capsules"]), np.asarray(drawn["capsule"])
    assert sorted(capsule[:J]) == list(range(J))
    own = np.arange(J)[None] == capsule[:, None]
    assert np.all(codes[~own] == 0)
    # Neurons at rest lie between off and on.
    np.testing.assert_allclose(np.abs(codes[own]), 0.5 / E**0.5, atol=1e-6)
    again = product.draw(9, seed=1, mode="single", domain=domain)["capsules"]
    np.testing.assert_array_equal(codes, again)


def test_complete_draws_are_of_the_capsule_s_law(product):
    number = 20_000
    codes = np.asarray(product.code_of_capsule(np.full(number, 1), seed=3)["capsules"])[:, 1]
    found = np.bincount((codes > 0) @ 2 ** np.arange(E), minlength=2**E) / number
    weights = np.asarray(product.layer.state_log_weights(), "float64")[1]
    p = np.exp(weights - weights.max())
    p /= p.sum()
    floor = np.sqrt(p * (1 - p) / number).sum() / 2
    assert np.abs(found - p).sum() / 2 < 4 * floor


@pytest.mark.some(2)
def test_chains_of_joint_draws_are_walked_a_part_at_a_time(product, monkeypatch):
    few = np.asarray(product.code_of_all(4, seed=5)["capsules"])
    monkeypatch.setattr(draws, "_AT_ONCE", 4)
    walked, noise = [], product.layer.noise

    def counted(n, seed):
        walked.append(n)
        return noise(n, seed)

    monkeypatch.setattr(product.layer, "noise", counted)
    np.testing.assert_array_equal(product.code_of_all(4, seed=5)["capsules"], few)
    many = np.asarray(product.code_of_all(12, seed=5)["capsules"])
    assert max(walked) <= 4
    # The first part is what is drawn alone; the others are draws of their own. Rounding of a
    # graph may turn a neuron over, of which one in fifty would be much.
    assert np.mean(many[:4] != few) < 0.02
    for first, second in ((0, 4), (4, 8), (0, 8)):
        assert np.mean(many[first : first + 4] != many[second : second + 4]) > 0.1
    # In a SavedModel their number is a tensor.
    graph = tf.function(lambda n: product.code_of_all(n, 5)["capsules"], autograph=False)
    assert np.mean(graph(tf.constant(12)) != many) < 0.02


def test_a_chain_keeps_what_it_stands_on(product):
    x = np.asarray(product.to_visible(pixels(4)))
    after = np.asarray(product.chain_step(x, seed=0))
    assert after.shape == x.shape
    kept = np.array_equal(after[..., -J:], x[..., -J:])
    assert kept == (product.layer.routing != "latent")
    assert np.asarray(product.from_visible(after)).shape == (4, 20, 20, 1)
    assert product.visible_noise(5, seed=1).shape == (5, *x.shape[1:])


def test_saved_and_loaded(product, tmp_path):
    product.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for a, b in zip(product.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    drawn = [m.sample(4, seed=2, mode="joint")["images"] for m in (product, again)]
    np.testing.assert_allclose(*drawn, atol=1e-6)


@pytest.fixture(scope="module")
def mixture():
    model = whole("mixture")
    model.layer.routing_bias.assign([0.5, -0.5, 0.0])
    return model


def test_joint_draws_are_of_the_model(mixture):
    codes = np.asarray(mixture.draw(20_000, seed=1, mode="joint")["capsules"])
    parent = np.abs(codes).sum(axis=-1)
    assert np.all((parent > 0).sum(axis=1) <= 1)
    tables = np.asarray(mixture.layer.state_log_weights(), "float64")
    within = np.exp(tables - logsumexp(tables, axis=1, keepdims=True))
    shares = np.exp([0.5, -0.5, 0.0])
    shares /= shares.sum()
    some_on = shares * (1 - within[:, 0])
    found = (parent > 0).mean(axis=0)
    np.testing.assert_allclose(found, some_on, atol=5 * 0.5 / 20_000**0.5)


def test_the_whole_works_as_the_others_do(mixture, tmp_path):
    code = mixture.code(pixels(7))
    lengths = np.linalg.norm(code["capsules"], axis=-1)
    np.testing.assert_allclose(lengths, code["probabilities"], atol=1e-6)
    for mode, domain in (("single", "prior"), ("single", "posterior"), ("joint", None)):
        assert mixture.sample(4, 0, mode, domain)["images"].shape == (4, 20, 20, 1)
    x = np.asarray(mixture.to_visible(pixels(4)))
    for seed in (None, 0):
        assert np.isfinite(mixture.chain_step(x, seed=seed)).all()
    assert mixture.visible_noise(5, seed=1).shape == (5, *x.shape[1:])
    mixture.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    drawn = [m.sample(4, seed=2)["images"] for m in (mixture, again)]
    np.testing.assert_allclose(*drawn, atol=1e-6)


def test_nats_are_exact(mixture):
    found = likelihood(mixture, images())
    v = mixture.primary.to_capsules(mixture.to_features(pixels(20, seed=1)))
    assert found["width"] is None and found["exact"] == 0
    np.testing.assert_allclose(found["nats"], -np.mean(mixture.layer.free_energy(v)), rtol=1e-6)
    assert "log Z is exact" in likelihood_text(found)


@pytest.mark.long
def test_a_boltzmann_machine_is_annealed():
    model = whole("averaged")
    found = likelihood(model, images(), temperatures=400, chains=60)
    exact = enumerated_log_partition(flattened(model.layer.harmonium()))
    assert found["exact"] == pytest.approx(exact, abs=1e-3)
    for side in ("forward", "reverse"):
        assert abs(found[side] - exact) < 5 * found[f"{side}_error"] + 0.05


def test_other_kinds_of_routing_have_no_likelihood(product):
    routing = product.layer.routing
    if routing != "averaged":
        with pytest.raises(BadUse, match=f"routing='{routing}' have no likelihood"):
            likelihood(product, images())
