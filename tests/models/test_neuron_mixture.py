"""Training of the mixture by exact maximum likelihood, and the draws and nats of the whole.

Wrong versions that these tests reject: an ascent that lowers the likelihood, an optimizer that is
given autodiff's gradient, joint draws that are not of the model, nats of features not sent.
"""

import keras
import numpy as np
import pytest
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

J, E = 3, 4


def data(n=90, seed=0):
    random = np.random.default_rng(seed)
    centres = 2 * random.normal(size=(J, 6, 4))
    return (centres[random.integers(J, size=n)] + random.normal(size=(n, 6, 4))).astype("float32")


def fitted(load_balancing=0.1, seed=5):
    keras.utils.set_random_seed(0)
    layer = NeuronMixture(J, E, kernel_initializer=keras.initializers.RandomNormal(0.1, seed=1))
    model = NeuronMixtureExperts(layer, load_balancing=load_balancing, seed=seed)
    model.compile(keras.optimizers.SGD(0.02, momentum=0.5), jit_compile=False)
    history = model.fit(data(), batch_size=30, epochs=25, verbose=0, shuffle=False).history
    return model, history


@pytest.mark.long
def test_training_finds_the_groups(no_autodiff):
    model, history = fitted()
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["free_energy"][-1] < history["free_energy"][0] - 5
    winners = np.argmax(model.machine.posterior(data()).parent, axis=1)
    assert len(set(winners.tolist())) == J


@pytest.mark.long
def test_equal_seeds_train_equal_models():
    (model, _), (again, _) = fitted(), fitted()
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_without_balance_shares_stay_equal():
    assert np.all(np.asarray(fitted(load_balancing=0)[0].machine.routing_bias) == 0)


def test_there_are_no_chains():
    with pytest.raises(ValueError, match="`algorithm` must be"):
        NeuronMixtureExperts(NeuronMixture(J, E), algorithm="cd")
    with pytest.raises(ValueError, match="must be a NeuronMixture layer"):
        NeuronMixtureExperts(NeuronPoE(J, E))


def product(experts, seed=2):
    keras.utils.set_random_seed(1)
    autoencoder = ConvAutoencoder(filters=8)
    autoencoder.build((None, 20, 20, 1))
    primary = PrimaryCapsules(4, target_length=2.0)
    primary.adapt([np.asarray(autoencoder.encode(pixels(50) / 255), "float32")])
    model = ProductOfExpertNeurons(autoencoder, primary, experts, posterior_states=5, joint_steps=3)
    model.build((None, 20, 20, 1))
    random = np.random.default_rng(seed)
    model.layer.kernel.assign(0.3 * random.normal(size=model.layer.kernel.shape))
    return model


def pixels(n, seed=0):
    return np.random.default_rng(seed).integers(256, size=(n, 20, 20, 1)).astype("uint8")


def images(n=20):
    return ImageData(ImageSet(pixels(50)), ImageSet(pixels(n, seed=1)))


@pytest.fixture(scope="module")
def mixture():
    model = product(NeuronMixtureExperts(NeuronMixture(J, E)))
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
    code = mixture.code(pixels(7) / 255)
    lengths = np.linalg.norm(code["capsules"], axis=-1)
    np.testing.assert_allclose(lengths, code["probabilities"], atol=1e-6)
    for mode, domain in (("single", "prior"), ("single", "posterior"), ("joint", None)):
        assert mixture.sample(4, 0, mode, domain)["images"].shape == (4, 20, 20, 1)
    x = np.asarray(mixture.to_visible(pixels(4) / 255))
    for seed in (None, 0):
        assert np.isfinite(mixture.chain_step(x, seed=seed)).all()
    assert mixture.visible_noise(5, seed=1).shape == (5, *x.shape[1:])
    mixture.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    drawn = [m.sample(4, seed=2)["images"] for m in (mixture, again)]
    np.testing.assert_allclose(*drawn, atol=1e-6)


def test_nats_are_exact(mixture):
    found = likelihood(mixture, images())
    v = mixture.primary.to_capsules(mixture.to_features(pixels(20, seed=1) / 255))
    assert found["width"] is None and found["exact"] == 0
    np.testing.assert_allclose(found["nats"], -np.mean(mixture.layer.free_energy(v)), rtol=1e-6)
    assert "log Z is exact" in likelihood_text(found)


@pytest.mark.long
def test_a_boltzmann_machine_is_annealed():
    model = product(NeuronExperts(NeuronPoE(J, E, routing="fixed", implementation="reference")))
    found = likelihood(model, images(), temperatures=400, chains=60)
    exact = enumerated_log_partition(flattened(model.layer.harmonium()))
    assert found["exact"] == pytest.approx(exact, abs=1e-3)
    for side in ("forward", "reverse"):
        assert abs(found[side] - exact) < 5 * found[f"{side}_error"] + 0.05


@pytest.mark.parametrize("routing", ["held", "latent"])
def test_other_readings_have_no_likelihood(routing):
    model = product(NeuronExperts(NeuronPoE(J, E, routing=routing, implementation="reference")))
    with pytest.raises(BadUse, match=f"routing='{routing}' have no likelihood"):
        likelihood(model, images())
