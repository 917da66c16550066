"""Harmoniums against sums over all states: free energies, conditionals, gradients, the chain.

The machines have strong weights, so that wrong formulas move visibly; `MUTANTS` breaks the code on
purpose, and `test_mutants` sees the checks of this file fail.
"""

import numpy as np
import pytest

from keras_capsule_poe.core.harmonium import log_variance_gradient
from keras_capsule_poe.functions import (
    BinaryUnits,
    CentredUnits,
    DenseMaps,
    EinsumMaps,
    Harmonium,
    chain_step,
    contrastive_divergence,
    gibbs_step,
)

CASES = [(visible, centred) for visible in ("bernoulli", "gaussian", "unit") for centred in (0, 1)]
IDS = [f"{visible}{'-centred' * centred}" for visible, centred in CASES]
every_kind = pytest.mark.parametrize("kind", CASES, ids=IDS)


def machine(enumerated, kind=("bernoulli", 1), **kwargs):
    visible, centred = kind
    neurons = 4 if visible == "bernoulli" else 2
    return enumerated(visible, neurons, centred=bool(centred), **kwargs)


# 1, 2: free energies and conditionals


def free_energies_agree(truth):
    ours = truth.harmonium()
    np.testing.assert_allclose(ours.free_energy(truth.sent()), truth.free_energy(), atol=1e-10)
    hidden = ours.transposed().free_energy(truth.h - truth.lam)
    # Quadrature of smooth functions, and sums, of float64.
    np.testing.assert_allclose(hidden, truth.hidden_free_energy(), atol=1e-8)


@every_kind
def test_free_energies_are_those_of_the_joint(enumerated, kind):
    free_energies_agree(machine(enumerated, kind))


@every_kind
def test_tempered_free_energies_are_those_of_a_machine_in_between(enumerated, kind):
    truth, beta = machine(enumerated, kind), 0.3
    base = np.linspace(-0.5, 0.8, len(truth.b))
    ours = truth.harmonium().tempered(beta, base)
    truth.w, truth.a = beta * truth.w, beta * truth.a
    truth.b = (1 - beta) * base + beta * truth.b
    np.testing.assert_allclose(ours.free_energy(truth.sent()), truth.free_energy(), atol=1e-10)
    hidden = ours.transposed().free_energy(truth.h - truth.lam)
    np.testing.assert_allclose(hidden, truth.hidden_free_energy(), atol=1e-8)


def conditionals_agree(truth):
    joint = truth.log_measure[:, None] - truth.energies()
    joint = np.exp(joint - joint.max())
    ours = truth.harmonium()
    hidden = joint @ truth.h / joint.sum(axis=1, keepdims=True)
    means = np.asarray(ours.hidden.mean(ours.fields(truth.sent()))) + truth.lam
    np.testing.assert_allclose(means, hidden, atol=1e-12)
    visible = joint.T @ truth.v / joint.sum(axis=0)[:, None]
    back = ours.transposed()
    means = np.asarray(back.hidden.mean(back.fields(truth.h - truth.lam))) + truth.mu
    np.testing.assert_allclose(means, visible, atol=1e-11)


@every_kind
def test_conditionals_are_those_of_the_joint(enumerated, kind):
    conditionals_agree(machine(enumerated, kind))


# 3: capsules of neurons with fixed coefficients are a Boltzmann machine


def test_neurons_with_fixed_coefficients_are_a_boltzmann_machine():
    random = np.random.default_rng(0)
    i, j, e, d = 3, 2, 2, 4
    w, c = random.normal(size=(i, j, e, d)), random.uniform(0.3, 1.5, size=(i, j))
    a, b = random.normal(size=(j, e)), random.normal(size=(i, d))
    v = random.integers(2, size=(5, i, d)).astype("float64")
    capsules = Harmonium(EinsumMaps(w), None, None, a, b, c)
    kernel = np.einsum("ij,ijed->jeid", c, w).reshape(j * e, i * d)
    dense = Harmonium(DenseMaps(kernel), None, None, a.ravel(), b.ravel())
    flat = v.reshape(5, -1)
    close = {"atol": 1e-12}
    np.testing.assert_allclose(capsules.free_energy(v), dense.free_energy(flat), **close)
    z = np.asarray(capsules.fields(v))
    np.testing.assert_allclose(z.reshape(5, -1), dense.fields(flat), **close)
    h = (z > 0).astype("float64")
    np.testing.assert_allclose(
        capsules.transposed().free_energy(h),
        dense.transposed().free_energy(h.reshape(5, -1)),
        **close,
    )
    for one, other in zip(gibbs_step(capsules, v, seed=3), gibbs_step(dense, flat, seed=3)):
        np.testing.assert_array_equal(np.reshape(one, (5, -1)), other)
    units = {"hidden": BinaryUnits(), "visible": BinaryUnits(), "seed": 3}
    pairs = np.repeat(c[None], 5, axis=0)
    update = contrastive_divergence(EinsumMaps(w), v, pairs, hidden_bias=a, visible_bias=b, **units)
    whole = contrastive_divergence(
        DenseMaps(kernel), flat, hidden_bias=a.ravel(), visible_bias=b.ravel(), **units
    )
    # The gradient in W is c times that in c W.
    blocks = np.asarray(whole.gradient).reshape(j, e, i, d).transpose(2, 0, 1, 3)
    np.testing.assert_allclose(update.gradient, c[..., None, None] * blocks, **close)
    np.testing.assert_array_equal(
        chain_step(EinsumMaps(w), v, pairs, hidden_bias=a, visible_bias=b, **units),
        gibbs_step(capsules, v, seed=3)[0],
    )


# 4: the gradient of the likelihood


def statistics(ours, x, weights):
    """Weighted sums of (p_h - lambda) x^T, p_h and x: d(-F) in every parameter."""
    score = np.asarray(ours.hidden.score(ours.fields(x)))
    weighted = weights[:, None] * score
    return weighted.T @ x, weighted.sum(axis=0), weights @ x


def data_term(ours, x):
    """What contrastive divergence has for the data: its gradient, the model's term added."""
    step = contrastive_divergence(
        ours.maps,
        x,
        hidden=ours.hidden,
        visible=ours.visible,
        hidden_bias=ours.hidden_bias,
        visible_bias=ours.visible_bias,
    )
    end = np.asarray(step.reconstruction)
    model = statistics(ours, end, np.full(len(end), 1 / len(end)))
    parts = step.gradient, step.hidden_bias, step.visible_bias
    return [np.asarray(part) + term for part, term in zip(parts, model)]


def gradient_is_of_the_likelihood(truth):
    data = truth.draws(10, seed=3)
    ours = truth.harmonium()
    model = statistics(ours, truth.sent(), truth.law())
    for data_part, model_part, slope in zip(
        data_term(ours, truth.sent(data)), model, truth.slopes(data)
    ):
        # Rounding 1e-15/h over the difference, and h^4.
        np.testing.assert_allclose(data_part - model_part, slope, atol=1e-7 * np.abs(slope).max())


@every_kind
def test_data_term_minus_model_term_is_the_likelihood_gradient(enumerated, kind):
    gradient_is_of_the_likelihood(machine(enumerated, kind))


@pytest.mark.parametrize("centred", [0, 1])
def test_the_gradient_in_the_variances_needs_no_model_term(enumerated, centred):
    truth, h = machine(enumerated, ("gaussian", centred)), 1e-4
    random = np.random.default_rng(5)
    v, log_variance = random.normal(size=(7, 2)), np.array([0.7, -0.4])

    def value(log_variance):
        standardised = v * np.exp(-log_variance / 2)
        return truth.log_likelihood(standardised) - log_variance.sum() / 2

    slope = [(value(log_variance + m) - value(log_variance - m)) / (2 * h) for m in h * np.eye(2)]
    x = v * np.exp(-log_variance / 2) - truth.mu
    found = np.asarray(log_variance_gradient(truth.harmonium(), x))
    np.testing.assert_allclose(found, slope, atol=1e-7)  # h^2 times third derivatives
    # In log s, by v without the means, without the Jacobian of v/s.
    for wrong in (2 * found, (found + 0.5) - 0.5 * x.mean(axis=0), found + 0.5):
        assert np.abs(wrong - slope).max() > 1e-2


# 14: invariances


def flipped_updates(truth, centred):
    """The update of v and that of 1 - v with the parameters that go with it, signs restored."""
    v = truth.draws(20, seed=2)
    updates = []
    for sign, images, mu in ((1, v, truth.mu), (-1, 1 - v, 1 - truth.mu)):
        visible, a = CentredUnits(BinaryUnits(), mu), truth.a
        if not centred:  # a + W (v - mu) = (a - W mu) + W v
            visible, a, mu = BinaryUnits(), truth.a - sign * truth.w @ mu, 0
        step = contrastive_divergence(
            DenseMaps(sign * truth.w),
            images - mu,
            hidden=CentredUnits(BinaryUnits(), truth.lam),
            visible=visible,
            hidden_bias=a,
            visible_bias=sign * truth.b,
            cd_steps=2,
        )
        parts = sign * np.asarray(step.gradient), step.hidden_bias, sign * step.visible_bias
        updates.append([np.asarray(part) for part in parts])
    return updates


def test_the_centred_update_does_not_care_which_state_is_called_one(enumerated):
    one, other = flipped_updates(machine(enumerated), centred=True)
    for part, flipped in zip(one, other):
        np.testing.assert_allclose(part, flipped, atol=1e-12)
    one, other = flipped_updates(machine(enumerated), centred=False)
    assert np.abs(one[0] - other[0]).max() > 1e-2


# Wrong versions


def _twice_down(patch):
    down = DenseMaps.down
    patch.setattr(DenseMaps, "down", lambda self, c, y: 2 * down(self, c, y))
    patch.setattr(
        Harmonium,
        "transposed",
        lambda self: Harmonium(
            DenseMaps(2 * np.asarray(self.maps.kernel).T),
            self.visible,
            self.hidden,
            self.visible_bias,
            self.hidden_bias,
        ),
    )


def _transposed_with(**changes):
    """A transposed machine of which something is wrong."""

    def patch_with(patch):
        right = Harmonium.transposed

        def transposed(self):
            found = right(self)
            for name, change in changes.items():
                setattr(found, name, change(getattr(found, name)))
            return found

        patch.setattr(Harmonium, "transposed", transposed)

    return patch_with


def _bias_sign(patch):
    patch.setattr(Harmonium, "fields", lambda self, x: self.maps.up(None, x) - self.hidden_bias)


def _no_offset(patch):
    patch.setattr(CentredUnits, "_centred", lambda self, x: x)


def _not_transposed(patch):
    patch.setattr(DenseMaps, "up", lambda self, c, x: x @ self.kernel)


MUTANTS = {
    "factor 2 down": _twice_down,
    "hidden bias sign": _bias_sign,
    "visible bias sign": _transposed_with(hidden_bias=lambda b: -b),
    "no visible bias": _transposed_with(hidden_bias=lambda b: 0 * b),
    "offset forgotten": _no_offset,
    "not transposed": _not_transposed,
}
CHECKS = [conditionals_agree, gradient_is_of_the_likelihood]


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants(enumerated, monkeypatch, name):
    """Each wrong version fails at least one check that the right one passes."""
    truth = enumerated("bernoulli", 4, hidden=4, centred=True)
    for check in CHECKS:
        check(truth)
    MUTANTS[name](monkeypatch)
    failed = []
    for check in CHECKS:
        try:
            check(truth)
        except AssertionError:
            failed.append(check.__name__)
    assert failed, f"{name} passes"


def test_capsules_need_coefficients():
    with pytest.raises(ValueError, match="`coefficients` must be.*Received: coefficients=None"):
        Harmonium(EinsumMaps(np.ones((2, 2, 2, 2))))
