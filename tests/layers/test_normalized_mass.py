"""Costs of matrix capsules by the mass that parents have on average: `normalize_mass`.

Rejected: masses of children that no window sees; of the grid that the layer was built for; a
beta_a that is divided, too; one temperature for few and for many children.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe import ConvEMCapsules
from keras_capsule_poe.functions import EMOptions, em_routing

RANDOM = keras.initializers.RandomNormal(stddev=0.5, seed=1)
TYPES = 2


def capsules(height, width, types=TYPES):
    random = np.random.default_rng(0)
    pose = random.normal(size=(2, height, width, types, 4, 4))
    return pose, random.uniform(0.1, 0.9, size=pose.shape[:4])


def options():
    starts = dict.fromkeys(("cost_initializer", "activation_initializer"), RANDOM)
    return {"kernel_initializer": RANDOM, "dtype": "float64", **starts}


@pytest.mark.parametrize("implementation", ["fused", "reference"])
@pytest.mark.parametrize("compete", ["all", "places"])
def test_costs_of_normalized_masses(compete, implementation):
    how = {"routing_iterations": 2, "inverse_temperature": 0.5, "compete": compete}
    more = {"normalize_mass": True, "activation_scale": 3.0, "implementation": implementation}
    layer = ConvEMCapsules(3, kernel_size=2, strides=2, **how, **more, **options())
    # Of five columns the windows see four; the second grid, of the same layer, is seen whole.
    for height, width, seen, places in ((4, 5, 16, 4), (2, 4, 8, 2)):
        pose, activation = capsules(height, width)
        found = layer((pose, activation))
        mass = seen * TYPES / (places * (3 if compete == "all" else 1))
        fields = layer.fields(pose)
        votes, beta_u = layer.votes(pose), np.asarray(layer.beta_u)
        # By the definition: lambda (beta_a - sum of costs / mass) is lambda' (beta_a' - costs).
        activations = fields.gather(activation.reshape(2, height * width, TYPES))
        given = EMOptions(**{**how, "inverse_temperature": 0.5 / mass})
        beta_a = mass * 3.0 * np.asarray(layer.beta_a)
        expected = em_routing(votes, activations, beta_u, beta_a, fields, given)
        # Float64 sums in another order.
        for a, b in zip(found, (expected.pose, expected.activation), strict=True):
            np.testing.assert_allclose(a, np.reshape(b, a.shape), rtol=1e-9)
    assert ConvEMCapsules.from_config(layer.get_config()).normalize_mass


def test_activations_of_many_children_are_those_of_few():
    # The same votes from ten times as many children: sums of costs are ten times as large.
    pose, activation = capsules(1, 1, types=2)
    kernel = np.random.default_rng(0).normal(size=(1, 2, 3, 4, 4))
    found = {}
    for softmax_over in (True, False):
        for times in (1, 10):
            layer = ConvEMCapsules(3, kernel_size=1, normalize_mass=softmax_over, **options())
            inputs = np.tile(pose, (1, 1, 1, times, 1, 1)), np.tile(activation, (1, 1, 1, times))
            layer.build([x.shape for x in inputs])
            betas = np.array([0.1, 0.2, 0.3]), np.array([-3.0, 1.0, 4.0])
            layer.set_weights([np.tile(kernel, (1, times, 1, 1, 1)), *betas])
            found[softmax_over, times] = np.asarray(layer(inputs)[1])
    np.testing.assert_allclose(found[True, 1], found[True, 10], rtol=1e-9)
    assert np.abs(found[False, 1] - found[False, 10]).max() > 1e-3
