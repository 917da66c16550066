"""Changes of the logits by each iteration, against NumPy in float64.

Rejected: changes of the coefficients; changes with their sign; the size of the logits instead of
their change.
"""

import numpy as np
import pytest
from scipy.special import softmax

from keras_capsule_poe import RoutingLayer
from keras_capsule_poe.core.routing import coupling_changes
from keras_capsule_poe.functions import EinsumMaps, Router, RoutingOptions

B, I, J, D, E = 3, 7, 4, 5, 6
UPDATES = 4


def numpy_logits(x, kernel, logits):
    """b_0 to the last, routing by products with the squash."""
    votes = np.einsum("bid,ijed->bije", x, np.broadcast_to(kernel, (I, *kernel.shape[1:])))
    b = [np.zeros((B, I, J))]
    for _ in range(UPDATES):
        z = np.einsum("bij,bije->bje", softmax(b[-1], axis=-1), votes)
        n = np.linalg.norm(z, axis=-1, keepdims=True)
        more = np.einsum("bije,bje->bij", votes, z * n / (1 + n**2))
        b.append(more if logits == "replaced" else b[-1] + more)
    return np.array(b)


@pytest.mark.parametrize("implementation", ["reference", "fused"])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("logits", ["accumulated", "replaced"])
def test_changes_are_those_of_the_logits(logits, shared, implementation):
    random = np.random.default_rng(0)
    x = random.normal(size=(B, I, D))
    kernel = random.normal(size=(1 if shared else I, J, E, D)) / 2
    options = {
        "routing_iterations": UPDATES + 1,
        "agreement": "dot",
        "logits": logits,
        "implementation": implementation,
    }
    layer = RoutingLayer(J, E, shared_weights=shared, dtype="float64", **options)
    layer.build(x.shape)
    layer.set_weights([kernel])
    found = np.asarray(coupling_changes(layer.router(inputs=I), x))
    b = numpy_logits(x, kernel, logits)
    # Float64 sums of a few dozen terms of order one, in another order.
    np.testing.assert_allclose(found, np.abs(np.diff(b, axis=0)).mean(axis=(1, 2, 3)), rtol=1e-10)
    each = np.asarray(coupling_changes(layer.router(inputs=I), x, each=True))
    np.testing.assert_allclose(each, np.abs(np.diff(b, axis=0)).mean(axis=(2, 3)).T, rtol=1e-10)
    for wrong in (np.abs(np.diff(softmax(b, axis=-1), axis=0)), np.diff(b, axis=0), np.abs(b[1:])):
        assert np.abs(found - wrong.mean(axis=(1, 2, 3))).max() > 0.01


@pytest.mark.parametrize("leaky", [False, True], ids=["", "leaky"])
@pytest.mark.parametrize("implementation", ["reference", "fused"])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_coefficients_of_each_iteration(shared, implementation, leaky):
    """Rejects those of the iteration before, a softmax over the inputs, and leaks given back."""
    random = np.random.default_rng(1)
    x, kernel = random.normal(size=(B, I, D)), random.normal(size=(1 if shared else I, J, E, D)) / 2
    options = {
        "routing_iterations": UPDATES + 1,
        "agreement": "dot",
        "implementation": implementation,
        "leaky": leaky,
    }
    layer = RoutingLayer(J, E, shared_weights=shared, dtype="float64", **options)
    layer.build(x.shape)
    layer.set_weights([kernel])
    router = layer.router(inputs=I)
    logits, found = map(np.stack, router.history(x))
    # Of the logits, which are tested above and begin at zero.
    b = np.concatenate([np.zeros((1, B, I, J)), logits])
    powers = np.exp(b)
    expected = powers / (powers.sum(axis=-1, keepdims=True) + leaky)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    # The last ones are what routing gives.
    np.testing.assert_allclose(found[-1], layer.route(x).coefficients, rtol=1e-10)
    for wrong in (found[:-1] - expected[1:], found - powers / powers.sum(axis=2, keepdims=True)):
        assert np.abs(wrong).max() > 0.01


def test_without_iterations_nothing_changes():
    router = Router(EinsumMaps(np.ones((I, J, E, D))), RoutingOptions(routing_iterations=1))
    with pytest.raises(ValueError, match="two iterations or more.*Received: routing_iterations=1"):
        coupling_changes(router, np.ones((B, I, D)))
