"""The Boltzmann machine on other backends."""

import pytest

PROGRAM = """
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
assert layer.contrastive_divergence(v, seed=1, steps=2).gradient.shape == (3, 6)
model = HarmoniumModel(layer, algorithm="pcd", chains=4)
model.build((None, 6))
assert model(v).shape == (8, 3)
model.save("harmonium.keras")
again = keras.models.load_model("harmonium.keras")
first, second = (keras.ops.convert_to_numpy(each(v)) for each in (model, again))
np.testing.assert_array_equal(first, second)
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_all_but_training_works(run_on, backend):
    run_on(backend, PROGRAM)
