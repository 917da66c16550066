"""Expert neurons with fixed coefficients: the Boltzmann machine of the kernel c_ij W_ij."""

import itertools

import numpy as np
import pytest

from keras_capsule_poe import RestrictedBoltzmannMachine
from keras_capsule_poe.core.harmonium import flattened
from keras_capsule_poe.functions import enumerated_log_partition

I, D, J, E = 3, 2, 2, 2
every_visible = pytest.mark.parametrize("visible", ["bernoulli", "gaussian", "unit"])
every_centre = pytest.mark.parametrize("centering", [False, True])


def same_machine(experts):
    """The `RestrictedBoltzmannMachine` of kernel c_ij W_ij, over flat neurons."""
    machine = RestrictedBoltzmannMachine(
        J * E, experts.visible, experts.centering, experts.learn_variance, dtype="float64"
    )
    machine.build((None, I * D))
    c, w = np.asarray(experts.mean_coefficients)[0], np.asarray(experts.kernel)
    machine.kernel.assign(np.einsum("ij,ijed->jeid", c, w).reshape(J * E, I * D))
    names = ["hidden_bias", "visible_bias"]
    names += ["hidden_offset", "visible_offset"] * experts.centering
    names += ["log_variance"] * (experts.visible == "gaussian")
    for name in names:
        getattr(machine, name).assign(np.ravel(getattr(experts, name)))
    return machine


def flat(x):
    return np.asarray(x).reshape(len(x), -1)


@pytest.mark.some(5)
@every_centre
@every_visible
def test_fixed_coefficients_are_a_boltzmann_machine(
    neuron_layer, neuron_images, visible, centering
):
    experts = neuron_layer("fixed", visible, centering)
    machine, v = same_machine(experts), neuron_images(visible)
    np.testing.assert_allclose(flat(experts(v)), machine(flat(v)), atol=1e-12)
    np.testing.assert_allclose(experts.free_energy(v), machine.free_energy(flat(v)), atol=1e-12)
    log_z = [enumerated_log_partition(m.harmonium()) for m in (machine,)]
    log_z.append(enumerated_log_partition(flattened(experts.harmonium())))
    assert log_z[0] == pytest.approx(log_z[1], abs=1e-12)
    for seed in (None, 5):  # mean field, and the same draws of the same seed
        ours, theirs = (
            m.contrastive_divergence(x, cd_steps=3, seed=seed)
            for m, x in ((experts, v), (machine, flat(v)))
        )
        c = np.asarray(experts.mean_coefficients)[0]
        dense = np.asarray(theirs.gradient).reshape(J, E, I, D).transpose(2, 0, 1, 3)
        np.testing.assert_allclose(ours.gradient, c[:, :, None, None] * dense, atol=1e-12)
        for name in ("reconstruction", "z", "z_model"):
            np.testing.assert_allclose(flat(getattr(ours, name)), getattr(theirs, name), atol=1e-12)
        for name in ("hidden_bias", "visible_bias"):
            np.testing.assert_allclose(
                np.ravel(getattr(ours, name)), getattr(theirs, name), atol=1e-12
            )
    c = experts.route(v).coefficients
    for ours, theirs in zip(experts.gibbs(v, c, 4, seed=2), machine.gibbs(flat(v), 4, seed=2)):
        np.testing.assert_allclose(flat(ours), theirs, atol=1e-12)


@every_centre
@every_visible
def test_persistent_chains_are_the_boltzmann_machine_s(
    neuron_layer, neuron_images, visible, centering
):
    experts = neuron_layer("fixed", visible, centering)
    machine, v, chains = (
        same_machine(experts),
        neuron_images(visible),
        neuron_images(visible, n=4, seed=9),
    )
    ours = experts.contrastive_divergence(v, cd_steps=2, seed=1, chains=chains)
    theirs = machine.contrastive_divergence(flat(v), cd_steps=2, seed=1, chains=flat(chains))
    np.testing.assert_allclose(flat(ours.reconstruction), theirs.reconstruction, atol=1e-12)
    np.testing.assert_allclose(np.ravel(ours.hidden_bias), theirs.hidden_bias, atol=1e-12)


def test_a_single_capsule_is_the_machine_without_the_others(neuron_layer):
    experts = neuron_layer("held")
    machine = experts.capsule_machine(1)
    c = np.asarray(experts.mean_coefficients)[2, :, 1]
    kernel = np.einsum("i,ied->eid", c, np.asarray(experts.kernel)[:, 1]).reshape(E, I * D)
    np.testing.assert_allclose(machine.maps.kernel, kernel, atol=1e-14)
    weights = np.asarray(experts.state_log_weights())
    h = np.array(list(itertools.product((0.0, 1.0), repeat=E)))
    fields = np.ravel(experts.visible_bias) + h @ kernel
    exact = h @ np.asarray(experts.hidden_bias)[1] + np.logaddexp(0, fields).sum(axis=1)
    order = (h @ 2 ** np.arange(E)).astype(int)
    np.testing.assert_allclose(weights[1][order], exact, atol=1e-12)
