"""The Boltzmann machine on JAX."""

import os
import subprocess
import sys

JAX = """
import keras, numpy as np
from keras_capsule_poe import *
from keras_capsule_poe.functions import *
assert keras.backend.backend() == "jax"
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
np.testing.assert_array_equal(again(v), model(v))
print("fine")
"""


def test_all_but_training_works_on_jax(tmp_path):
    shown = subprocess.run(
        [sys.executable, "-c", JAX],
        cwd=tmp_path,
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert shown.stdout.strip() == "fine", shown.stderr
