"""Expert neurons on JAX."""

import os
import subprocess
import sys

JAX = """
import keras, numpy as np
from keras_capsule_poe import *
from keras_capsule_poe.functions.compiled import compiled
assert keras.backend.backend() == "jax"
v = np.random.default_rng(0).normal(size=(8, 6, 4)).astype("float32")
for routing in ("held", "fixed", "latent"):
    layer = NeuronPoE(3, 4, routing=routing)
    layer.build(v.shape)

    # As one graph: step by step Jax would compile each operation for itself.
    @compiled
    def everything(v):
        state = layer.gibbs(v, layer.route(v).coefficients, steps=3, seed=0)
        step = layer.contrastive_divergence(v, seed=1, steps=2)
        return layer(v), layer.free_energy(v), step.gradient, state, layer.state_log_weights()

    parents, energy, gradient, state, weights = everything(v)
    assert parents.shape == (8, 3, 4) and energy.shape == (8,)
    assert gradient.shape == (6, 3, 4, 4) and weights.shape == (3, 16)
    assert [part.shape for part in state] == [(8, 6, 4), (8, 3, 4), (8, 6, 3)]
model = NeuronExperts(layer)
model.build((None, 6, 4))
model.save("neurons.keras")
np.testing.assert_array_equal(keras.models.load_model("neurons.keras")(v), model(v))
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
