"""Boltzmann machines and expert neurons on Keras' other backends; `test_training_on_jax` fits."""

import pytest

BOLTZMANN = """
import numpy as np
from keras_capsule_poe import *
from keras_capsule_poe.functions import *
v = np.random.default_rng(0).integers(2, size=(8, 6)).astype("float32")
layer = RestrictedBoltzmannMachine(3)
layer.adapt(v)
assert layer(v).shape == (8, 3) and layer.reconstruct(v).shape == v.shape
machine = layer.harmonium()
exact = enumerated_log_partition(machine)
found = annealed_partition(machine, annealing_schedule((1.0, 50)), chains=20)
assert abs(found.log_z - exact) < 0.1, (found.log_z, exact)
assert layer.contrastive_divergence(v, seed=1, cd_steps=2).gradient.shape == (3, 6)
model = HarmoniumModel(layer, algorithm="pcd", persistent_chains=4)
model.build((None, 6))
assert model(v).shape == (8, 3)
model.save("harmonium.keras")
again = keras.models.load_model("harmonium.keras")
first, second = (keras.ops.convert_to_numpy(each(v)) for each in (model, again))
np.testing.assert_array_equal(first, second)
"""

NEURONS = """
import numpy as np
from keras_capsule_poe import *
from keras_capsule_poe.core.numerics import compiled
v = np.random.default_rng(0).normal(size=(8, 6, 4)).astype("float32")
for routing in ("per_image", "averaged", "latent"):
    layer = NeuronPoE(3, 4, routing=routing)
    layer.build(v.shape)

    # As one graph: step by step Jax would compile each operation for itself.
    @compiled
    def everything(v):
        state = layer.gibbs(v, layer.route(v).coefficients, steps=3, seed=0)
        step = layer.contrastive_divergence(v, seed=1, cd_steps=2)
        return layer(v), layer.free_energy(v), step.gradient, state, layer.state_log_weights()

    parents, energy, gradient, state, weights = everything(v)
    assert parents.shape == (8, 3, 4) and energy.shape == (8,)
    assert gradient.shape == (6, 3, 4, 4) and weights.shape == (3, 16)
    assert [part.shape for part in state] == [(8, 6, 4), (8, 3, 4), (8, 6, 3)]
model = NeuronExperts(layer)
model.build((None, 6, 4))
model.save("neurons.keras")
again = keras.models.load_model("neurons.keras")
first, second = (keras.ops.convert_to_numpy(each(v)) for each in (model, again))
np.testing.assert_array_equal(first, second)
"""


@pytest.mark.long
@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(BOLTZMANN, id="boltzmann"),
        pytest.param(NEURONS, id="neurons"),
    ],
)
def test_they_compute_and_are_saved(run_on, backend, program):
    run_on(backend, program)
