"""Training of expert neurons, by contrastive divergence and by exact maximum likelihood.

Wrong versions that these tests reject: an optimizer that is given autodiff's gradient, an ascent
that lowers the likelihood, samples of latent parents without a law of their own.
"""

import itertools

import keras
import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from keras_capsule_poe import NeuronExperts, NeuronMixture, NeuronMixtureExperts, NeuronPoE

J, E = 3, 4


def experts(routing="per_image", **options):
    layer = {"use_routing_bias": bool(options.get("load_balancing")), "implementation": "reference"}
    return NeuronExperts(NeuronPoE(J, E, routing=routing, **layer), **options)


def data(n=60, seed=0):
    random = np.random.default_rng(seed)
    centres = 2 * random.normal(size=(3, 6, 4))
    return (centres[random.integers(3, size=n)] + random.normal(size=(n, 6, 4))).astype("float32")


def fitted(model, epochs=25, learning_rate=0.02):
    """The history of a model after some epochs."""
    model.compile(keras.optimizers.SGD(learning_rate, momentum=0.5), jit_compile=False)
    return model.fit(data(), batch_size=20, epochs=epochs, verbose=0, shuffle=False).history


def mixture(load_balancing=0.1):
    maps = keras.initializers.RandomNormal(0.1, seed=1)
    layer = NeuronMixture(J, E, kernel_initializer=maps)
    return NeuronMixtureExperts(layer, load_balancing=load_balancing, seed=5)


@pytest.mark.long
@pytest.mark.parametrize(
    "routing, options",
    [
        ("per_image", {"load_balancing": 0.03}),
        ("averaged", {}),
        ("averaged", {"algorithm": "pcd", "persistent_chains": 20, "cd_steps": 2}),
        ("latent", {}),
    ],
)
def test_training_finds_the_groups(routing, options, no_autodiff):
    history = fitted(experts(routing, **options))
    assert history["loss"][-1] < 0.8 * history["loss"][0]
    assert np.isfinite(history["free_energy"]).all()


@pytest.mark.long
def test_a_mixture_finds_the_groups(no_autodiff):
    model = mixture()
    history = fitted(model)
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["free_energy"][-1] < history["free_energy"][0] - 5
    winners = np.argmax(model.machine.posterior(data()).parent, axis=1)
    assert len(set(winners.tolist())) == J


@pytest.mark.long
@pytest.mark.parametrize("create", [lambda: experts(load_balancing=0.03, seed=5), mixture])
def test_equal_seeds_train_equal_models(create):
    found = []
    for _ in range(2):
        keras.utils.set_random_seed(0)
        model = create()
        fitted(model, epochs=2)
        found.append(model.get_weights())
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_without_load_balancing_shares_stay_equal():
    model = mixture(load_balancing=0)
    fitted(model, epochs=2)
    assert np.all(np.asarray(model.machine.routing_bias) == 0)


@pytest.mark.parametrize("wrong", [{"algorithm": "pcd"}, {"chains_initializer": "noise"}])
def test_chains_without_an_image_are_refused(wrong):
    with pytest.raises(ValueError, match="Chains must be of the data"):
        experts("per_image", **wrong)
    experts("averaged", **wrong)


def test_balance_needs_a_routing_bias():
    with pytest.raises(ValueError, match="`load_balancing` moves the routing bias"):
        NeuronExperts(NeuronPoE(J, E), load_balancing=0.1)


def test_there_are_no_chains():
    with pytest.raises(ValueError, match="`algorithm` must be"):
        NeuronMixtureExperts(NeuronMixture(J, E), algorithm="cd")
    with pytest.raises(ValueError, match="must be a NeuronMixture layer"):
        NeuronMixtureExperts(NeuronPoE(J, E))


@pytest.mark.long
@pytest.mark.parametrize("centering", [False, True])
def test_latent_samples_are_of_the_enumerated_law(neuron_layer, centering):
    """P(v) of all states of the hidden neurons and of the parents, term by term."""
    number, layer = 60_000, neuron_layer("latent", centering=centering, seed=4, dtype="float32")
    i, j, e, d = layer.kernel.shape
    w, a, b = (
        np.asarray(x, "float64") for x in (layer.kernel, layer.hidden_bias, layer.visible_bias)
    )
    v, h = (
        np.array(list(itertools.product((0.0, 1.0), repeat=n * dim))).reshape(-1, n, dim)
        for n, dim in ((i, d), (j, e))
    )
    x, y = v, h
    if centering:
        x, y = v - np.asarray(layer.visible_offset), h - np.asarray(layer.hidden_offset)
    logs = []
    for parent in itertools.product(range(j), repeat=i):
        c = layer.coefficient_scale * np.eye(j)[list(parent)]
        pairs = np.einsum("ij,mje,ijed,nid->nm", c, y, w, x)
        logs.append(pairs + np.einsum("nid,id->n", x, b)[:, None] + np.einsum("mje,je->m", y, a))
    p = softmax(logsumexp(logs, axis=(0, 2)))
    drawn = NeuronExperts(layer).sample(number, steps=60, seed=0)
    where = np.rint(np.reshape(drawn, (number, -1)) @ 2 ** np.arange(i * d)[::-1]).astype(int)
    found = np.bincount(where, minlength=len(p)) / number
    # Over the mean total variation of exact draws.
    assert np.abs(found - p).sum() < 4 * np.sqrt(2 / np.pi * p * (1 - p) / number).sum()


def test_without_an_image_there_is_nothing_to_route_by():
    with pytest.raises(ValueError, match="nothing to route by"):
        experts("per_image").sample(3)
