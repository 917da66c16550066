"""Gradients by hand reach every backend: those of the readable forms, by its own autodiff.

Rejected: Keras' own form of them on Torch, which passes on the gradient of one result only.
"""

import numpy as np

from keras_capsule_poe.core.numerics import custom_gradient

ON_TORCH = """
import numpy as np, torch
from keras_capsule_poe import *

random = np.random.default_rng(0)
capsules = random.normal(size=(5, 12, 4)).astype("float32")
poses = random.normal(size=(3, 6, 5, 2, 3, 3)).astype("float32")
activations = random.uniform(size=poses.shape[:4]).astype("float32")


def found(layer, inputs):
    inputs = [torch.tensor(x, requires_grad=True) for x in inputs]
    results = keras.tree.flatten(layer(inputs if len(inputs) > 1 else inputs[0]))
    random = np.random.default_rng(1)
    weights = [torch.tensor(random.normal(size=x.shape).astype("float32")) for x in results]
    sum((w * x).sum() for w, x in zip(weights, results)).backward()
    gradients = [x.grad for x in (*inputs, *(v.value for v in layer.trainable_variables))]
    return [x.detach().numpy() for x in (*results, *gradients)]


for make, inputs in (
    (lambda form: RoutingLayer(3, 6, implementation=form), [capsules]),
    (lambda form: RoutingLayer(3, 6, shared_weights=True, leaky=True, use_bias=True,
                               implementation=form), [capsules]),
    (lambda form: RoutingLayer(3, 6, agreement="dot", implementation=form), [capsules]),
    (lambda form: SelfAttentionRouting(3, 6, implementation=form), [capsules]),
    (lambda form: ConvEMCapsules(4, kernel_size=3, implementation=form), [poses, activations]),
):
    plain, streamed = make("reference"), make("fused")
    for layer in (plain, streamed):
        layer(inputs if len(inputs) > 1 else inputs[0])
    weights = [0.3 * random.normal(size=v.shape) for v in plain.variables]
    plain.set_weights(weights), streamed.set_weights(weights)
    for theirs, ours in zip(found(plain, inputs), found(streamed, inputs), strict=True):
        assert np.abs(theirs).max() > 0
        # Float32 sums of a thousand terms.
        np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())
"""


def test_on_torch_they_are_those_of_the_readable_forms(run_on):
    run_on("torch", ON_TORCH)


def test_each_result_has_its_own():
    @custom_gradient
    def scaled(x):
        def gradient(first, second):
            return [2 * first + 3 * second]

        return (2 * x, 3 * x), gradient

    import tensorflow as tf

    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        two, three = scaled(x)
        loss = tf.reduce_sum(two) + 10 * tf.reduce_sum(three)
    np.testing.assert_array_equal(tape.gradient(loss, x), [32.0, 32.0])
