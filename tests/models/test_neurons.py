"""Training of expert neurons, and the draws of the whole.

Wrong versions that these tests reject: a capsule drawn with the others on, draws that depend on
each other, chains that lose their routing, an optimizer that is given autodiff's gradient.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import (
    ConvAutoencoder,
    NeuronExperts,
    NeuronPoE,
    PrimaryCapsules,
    ProductOfExpertNeurons,
)
from keras_capsule_poe.models.neurons import product as draws

J, E = 3, 4


def experts(routing="held", **options):
    layer = {"use_routing_bias": bool(options.get("load_balancing")), "implementation": "reference"}
    return NeuronExperts(NeuronPoE(J, E, routing=routing, **layer), **options)


def data(n=60, seed=0):
    random = np.random.default_rng(seed)
    centres = 2 * random.normal(size=(3, 6, 4))
    return (centres[random.integers(3, size=n)] + random.normal(size=(n, 6, 4))).astype("float32")


@pytest.mark.long
@pytest.mark.parametrize(
    "routing, options",
    [
        ("held", {"load_balancing": 0.03}),
        pytest.param("fixed", {}, marks=pytest.mark.long),
        pytest.param(
            "fixed",
            {"algorithm": "pcd", "persistent_chains": 20, "cd_steps": 2},
            marks=pytest.mark.long,
        ),
        pytest.param("latent", {}, marks=pytest.mark.long),
    ],
)
def test_training_finds_the_groups(routing, options, no_autodiff):
    model, v = experts(routing, **options), data()
    model.compile(keras.optimizers.SGD(0.02, momentum=0.5), jit_compile=False)
    history = model.fit(v, batch_size=20, epochs=25, verbose=0).history
    assert history["loss"][-1] < 0.8 * history["loss"][0]
    assert np.isfinite(history["free_energy"]).all()


@pytest.mark.long
def test_equal_seeds_train_equal_models():
    found = []
    for _ in range(2):
        keras.utils.set_random_seed(0)
        model = experts("held", load_balancing=0.03, seed=5)
        model.compile(keras.optimizers.SGD(0.02), jit_compile=False)
        model.fit(data(), batch_size=20, epochs=2, verbose=0, shuffle=False)
        found.append(model.get_weights())
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("wrong", [{"algorithm": "pcd"}, {"chains_initializer": "noise"}])
def test_chains_without_an_image_are_refused(wrong):
    with pytest.raises(ValueError, match="Chains must be of the data"):
        experts("held", **wrong)
    experts("fixed", **wrong)


def test_balance_needs_a_routing_bias():
    with pytest.raises(ValueError, match="`load_balancing` moves the routing bias"):
        NeuronExperts(NeuronPoE(J, E), load_balancing=0.1)


@pytest.fixture(scope="module", params=["held", "fixed", "latent"])
def product(request):
    keras.utils.set_random_seed(1)
    autoencoder = ConvAutoencoder(filters=8)
    autoencoder.build((None, 20, 20, 1))
    primary = PrimaryCapsules(4, target_length=2.0)
    features = np.asarray(autoencoder.encode(pixels(50)), "float32")
    primary.adapt([features])
    model = ProductOfExpertNeurons(
        autoencoder, primary, experts(request.param), posterior_states=5, joint_steps=3
    )
    model.build((None, 20, 20, 1))
    layer, random = model.layer, np.random.default_rng(2)
    layer.kernel.assign(0.3 * random.normal(size=layer.kernel.shape))
    layer.mean_coefficients.assign(random.uniform(size=layer.mean_coefficients.shape))
    model.visited.assign(random.uniform(size=model.visited.shape))
    return model


def pixels(n, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, 20, 20, 1)).astype("float32")


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
    codes = np.asarray(product.code_of_capsule(np.full(number, 1), seed=3))[:, 1]
    found = np.bincount((codes > 0) @ 2 ** np.arange(E), minlength=2**E) / number
    weights = np.asarray(product.layer.state_log_weights(), "float64")[1]
    p = np.exp(weights - weights.max())
    p /= p.sum()
    floor = np.sqrt(p * (1 - p) / number).sum() / 2
    assert np.abs(found - p).sum() / 2 < 4 * floor


@pytest.mark.some(2)
def test_chains_of_joint_draws_are_walked_a_part_at_a_time(product, monkeypatch):
    few = np.asarray(product.code_of_all(4, seed=5))
    monkeypatch.setattr(draws, "_AT_ONCE", 4)
    walked, noise = [], product.noise

    def counted(n, seed):
        walked.append(n)
        return noise(n, seed)

    monkeypatch.setattr(product, "noise", counted)
    np.testing.assert_array_equal(product.code_of_all(4, seed=5), few)
    many = np.asarray(product.code_of_all(12, seed=5))
    assert max(walked) <= 4
    # The first part is what is drawn alone; the others are draws of their own. Rounding of a
    # graph may turn a neuron over, of which one in fifty would be much.
    assert np.mean(many[:4] != few) < 0.02
    for first, second in ((0, 4), (4, 8), (0, 8)):
        assert np.mean(many[first : first + 4] != many[second : second + 4]) > 0.1
    # In a SavedModel their number is a tensor.
    graph = tf.function(lambda n: product.code_of_all(n, 5), autograph=False)
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
