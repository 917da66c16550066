"""Former names of arguments: each warns and gives the same object, and old configs load silently.

Rejected: a count of updates that is taken for one of iterations, a former word that is refused, a
warning from a file, two names for one value.
"""

import warnings

import numpy as np
import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe import functions
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.former_names import FORMER, current

ROUTING = {"iterations": 2, "temperature": 3.0, "normalize": "inputs", "scale": 5.0}
ROUTING["activation_prior"] = 0.5
CURRENT = {
    "routing_iterations": 3,
    "agreement_scale": 3.0,
    "softmax_over": "inputs",
    "activation_prior_weight": 0.5,
    "coefficient_sum": 5.0,
}
PARENTS = ({"iterations": 2}, {"routing_iterations": 2})


def form(former, new):
    return {"implementation": former}, {"implementation": new}


def balanced(kind):
    return kind(2, 3, use_routing_bias=True)


LAYERS = [
    *[(lambda kind=kind, **o: kind(2, 3, **o), ROUTING, CURRENT)
      for kind in (kcp.RoutingLayer, kcp.CapsulePoE, kcp.NeuronPoE, kcp.NeuronMixture)],
    (lambda **o: kcp.RoutingLayer(2, 3, **o), *form("plain", "reference")),
    (lambda **o: kcp.CapsulePoE(2, 3, **o), *form("streamed", "fused")),
    (lambda **o: kcp.SelfAttentionRouting(2, 3, **o), *form("streamed", "fused")),
    (lambda **o: kcp.ConvEMCapsules(2, **o), *form("compiled", "xla")),
    (lambda **o: kcp.ConvEMCapsules(2, **o), *PARENTS),
    (lambda **o: kcp.EMCapsules(2, **o), *PARENTS),
    (lambda **o: kcp.CapsuleEncoder(balanced(kcp.CapsulePoE), **o),
     {"balance": 0.5, "chain_steps": 4}, {"load_balancing": 0.5, "cd_steps": 4}),
    (lambda **o: kcp.NeuronExperts(balanced(kcp.NeuronPoE), **o),
     {"balance": 0.5, "steps": 4}, {"load_balancing": 0.5, "cd_steps": 4}),
    (lambda **o: kcp.HarmoniumModel(kcp.RestrictedBoltzmannMachine(3), **o),
     {"steps": 4, "chains": 7, "start": "noise"},
     {"cd_steps": 4, "persistent_chains": 7, "chains_initializer": "noise"}),
    (lambda **o: kcp.ImageBoltzmannMachine(kcp.RestrictedBoltzmannMachine(3), (4, 4, 1), **o),
     {"particles": 7}, {"persistent_chains": 7}),
]  # fmt: skip


@pytest.mark.parametrize("make, former, new", LAYERS)
def test_a_layer_or_model(make, former, new):
    with pytest.warns(FutureWarning) as told:
        layer = make(**former)
    assert {str(each.message) for each in told} == {
        f"{name} is deprecated: use {key}={value!r}"
        for name, (key, value) in zip(former, _in_the_order_of(former, new, layer))
    }
    assert {each.filename for each in told} == {__file__}
    config = layer.get_config()
    assert {name: config[name] for name in new} == new
    assert not (former.keys() - new.keys()) & config.keys()
    old = {name: value for name, value in config.items() if name not in new} | former
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = type(layer).from_config(old)
    # A model without its weights has no config of what was trained.
    found = vars(again) if isinstance(again, kcp.ImageBoltzmannMachine) else again.get_config()
    assert {name: found[name] for name in new} == new


def _in_the_order_of(former, new, layer):
    rows = {}
    for base in type(layer).__mro__:
        rows |= FORMER.get(base.__name__, {})
    return [(rows[name][0], new[rows[name][0]]) for name in former]


def test_functions():
    x, kernel = np.ones((2, 6, 4)) / 4, np.random.default_rng(0).normal(size=(6, 5, 3, 4))
    with pytest.warns(FutureWarning):
        former = functions.route(x, kernel, **ROUTING)
    np.testing.assert_array_equal(former.z, functions.route(x, kernel, **CURRENT).z)
    maps = functions.EinsumMaps(kernel)
    with pytest.warns(FutureWarning):
        former = functions.LatentRouter(maps, iterations=2, scale=5.0).route(x)
    new = functions.LatentRouter(maps, routing_iterations=3, coefficient_sum=5.0).route(x)
    np.testing.assert_array_equal(former.z, new.z)
    machine = functions.Harmonium(maps, coefficients=new.coefficients)
    with pytest.warns(FutureWarning):
        former = functions.latent_free_energy(machine, x, scale=5.0)
    np.testing.assert_array_equal(former, functions.latent_free_energy(machine, x, 5.0))
    for kind in (functions.EMOptions, functions.VariationalOptions):
        with pytest.warns(FutureWarning):
            assert kind(iterations=2) == kind(routing_iterations=2)


def test_settings_of_a_model_that_is_not_trained():
    with pytest.warns(FutureWarning):
        former = kcp.ProductOfExpertNeurons(remembered=9, recipe="mixture")
    new = kcp.ProductOfExpertNeurons(posterior_states=9, joint_steps=4)
    assert former.settings.experts.posterior_states == 9 and former.settings.preset == "mixture"
    assert new.settings.given == {"experts.posterior_states", "experts.joint_steps"}
    again = type(new).from_config(new.get_config()).settings
    assert again.to_dict() == new.settings.to_dict()
    assert kcp.ImageBoltzmannMachine(persistent_chains=9).settings.rbm.persistent_chains == 9


def test_two_names_of_one_value():
    for given in ({"balance": 0.1, "load_balancing": 0.2}, {"load_balancing": 0.2, "balance": 0.1}):
        with pytest.raises(BadUse, match="two names of one argument: give load_balancing alone"):
            kcp.CapsuleEncoder(balanced(kcp.CapsulePoE), **given)
    assert current("no such owner", {"balance": 1}) == {"balance": 1}


def test_counts_are_given_by_name():
    """A number of updates at its former place would be taken for one of iterations."""
    for kind in (kcp.RoutingLayer, kcp.CapsulePoE):
        with pytest.raises(TypeError, match="positional"):
            kind(2, 3, 2)
