"""Training on two replicas of a strategy of Keras."""

import os
import subprocess
import sys

import pytest

REPLICAS = """
import sys; sys.modules.update(dict.fromkeys(("jax", "matplotlib", "sklearn")))
import keras, numpy as np, tensorflow as tf
from keras_capsule_poe import CapsuleEncoder, CapsulePoE, ConvAutoencoder
device = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
x = np.random.default_rng(0).uniform(-0.4, 0.4, size=(32, 6, 4)).astype("float32")

def train():
    start = keras.initializers.RandomNormal(stddev=0.3, seed=1)
    layer = dict(kernel_initializer=start, use_routing_bias=True, activation_prior_weight=1.0)
    experts = CapsulePoE(5, 3, implementation="reference", **layer)
    model = CapsuleEncoder(experts, load_balancing=0.03)
    model.build((None, 6, 4))
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), jit_compile=False)
    model.fit(x, batch_size=16, epochs=2, shuffle=False, verbose=0)
    return model

one = train().experts
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    two = train().experts
biases = [np.asarray(copy) for copy in two.routing_bias.value.values]
assert len(biases) == 2 and np.abs(biases[0]).max() > 1e-3
assert np.array_equal(*biases)
for bias in biases:
    np.testing.assert_allclose(bias, np.asarray(one.routing_bias.value), atol=1e-6)
np.testing.assert_allclose(two.kernel.value.values[0], one.kernel.value, atol=1e-6)

with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
    model = ConvAutoencoder(filters=2)
    model.compile("sgd", "mse", jit_compile=False)
model.fit(np.zeros((4, 20, 20, 1), "float32"), verbose=0)
print("fine")
"""


def run(program, folder, **environment):
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.long
def test_replicas_end_with_one_routing_bias(tmp_path):
    shown = run(REPLICAS, tmp_path)
    assert shown.stdout.strip().endswith("fine"), shown.stderr
