"""Log weights, and the likelihood's gradient by importance averages, against enumeration."""

import itertools

import numpy as np
import pytest
from theory.importance import importance_gradient

from keras_capsule_poe.core.mcmc import expert_log_weight
from keras_capsule_poe.functions import (
    BlockMaps,
    CapsuleUnits,
    EinsumMaps,
    Router,
    RoutingOptions,
    free_energy,
)

I, J, D, E = 3, 2, 2, 2
VALUES = np.array([[0.0, 0.1], [0.6, 0.0], [0.1, -0.9], [-0.3, 0.4]])
STATES = np.array([VALUES[list(s)] for s in itertools.product(range(4), repeat=I)])


def model():
    random = np.random.default_rng(0)
    return 1.5 * random.normal(size=(I, J, E, D)), random.uniform(0.3, 1.5, size=(I, J))


def test_log_weights_are_free_energies():
    kernel, c = model()
    maps = EinsumMaps(kernel)
    rows = np.repeat(c[None], len(STATES), axis=0)
    found = expert_log_weight(kernel, c)(STATES)
    np.testing.assert_allclose(found, -free_energy(maps.up(rows, STATES)), rtol=1e-12)
    router = Router(maps, RoutingOptions(routing_iterations=2))
    found = expert_log_weight(kernel, router)(STATES)
    np.testing.assert_allclose(found, -free_energy(router.route(STATES).z), rtol=1e-12)
    with pytest.raises(ValueError, match=r"`coefficients` must be a Router or of shape \(3, 2\)"):
        expert_log_weight(kernel, c.T[None])


def exact_gradient(data):
    """Of the mean log P(data), the model's mean enumerated, state by state."""
    kernel, c = model()

    def slopes(v):
        z = np.einsum("ij,ijed,id->je", c, kernel, v)
        score = 2 * z / (1 + np.square(z).sum(axis=-1, keepdims=True))
        return np.einsum("ij,je,id->ijed", c, score, v)

    each = np.array([slopes(v) for v in STATES])
    w = np.exp(np.asarray(expert_log_weight(kernel, c)(STATES)))
    return np.mean([slopes(v) for v in data], axis=0) - np.tensordot(w / w.sum(), each, axes=1)


def estimates(data, draws=2000, runs=30):
    kernel, c = model()
    random = np.random.default_rng(1)
    for _ in range(runs):
        fresh = STATES[random.integers(len(STATES), size=draws)]
        yield importance_gradient(EinsumMaps(kernel), data, fresh, c)


def errors(found, exact):
    """Distance of the mean from the exact gradient in standard errors, each entry."""
    return np.abs(found.mean(axis=0) - exact) / (found.std(axis=0, ddof=1) / np.sqrt(len(found)))


def test_the_importance_gradient_is_the_likelihood_gradient():
    data = STATES[[5, 27, 27, 63]]
    exact = exact_gradient(data)
    found = list(estimates(data))
    gradients = np.array([step.gradient for step in found])
    # The bias of a ratio, of order 1/2000, is a tenth of a standard error.
    assert errors(gradients, exact).max() < 5
    # All states, once each, are the base itself: no chance is left.
    kernel, c = model()
    whole = importance_gradient(EinsumMaps(kernel), data, STATES, c)
    np.testing.assert_allclose(whole.gradient, exact, atol=1e-13)
    w = np.exp(np.asarray(expert_log_weight(kernel, c)(STATES)))
    assert float(whole.effective) == pytest.approx(w.sum() ** 2 / np.square(w).sum(), rel=1e-12)


class Shifted(CapsuleUnits):
    """Wrong: weights w^2, or all alike."""

    def __init__(self, factor):
        self._factor = factor

    def free_energy(self, z, axis=-1):
        return self._factor * super().free_energy(z, axis)


@pytest.mark.parametrize("factor", [0, 0.5, 2, -1])
def test_wrong_weights_are_seen(factor, monkeypatch):
    data = STATES[[5, 27, 27, 63]]
    kernel, c = model()
    random = np.random.default_rng(1)
    found = [
        importance_gradient(
            EinsumMaps(kernel), data, STATES[random.integers(64, size=2000)], c, Shifted(factor)
        ).gradient
        for _ in range(10)
    ]
    assert errors(np.array(found), exact_gradient(data)).max() > 10


def test_blocks_give_the_same_gradient():
    kernel, c = model()
    router = RoutingOptions(routing_iterations=3)
    for coefficients in (lambda maps: c, lambda maps: Router(maps, router)):
        one, other = (
            importance_gradient(maps, STATES[:5], STATES, coefficients(maps))
            for maps in (EinsumMaps(kernel), BlockMaps(kernel))
        )
        np.testing.assert_allclose(one.gradient, other.gradient, atol=1e-13)
