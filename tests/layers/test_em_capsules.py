"""Layers of matrix capsules: their votes in NumPy (float64), on JAX.

Rejected: votes W M; maps of another place of the window; coordinates that are swapped, in other
numbers of the pose, or of the parents; shared weights that are not.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, logit

from keras_capsule_poe import ConvEMCapsules, EMCapsules, PrimaryMatrixCapsules
from keras_capsule_poe.functions import (
    EMOptions,
    VariationalOptions,
    em_routing,
    variational_routing,
)

RANDOM = keras.initializers.RandomNormal(stddev=0.5, seed=1)
TYPES = 2


def capsules(height=4, width=5, types=TYPES, size=4, images=2):
    random = np.random.default_rng(0)
    pose = random.normal(size=(images, height, width, types, size, size))
    return pose, random.uniform(0.1, 0.9, size=pose.shape[:4])


def options(**more):
    starts = dict.fromkeys(("cost_initializer", "activation_initializer"), RANDOM)
    return {"kernel_initializer": RANDOM, "dtype": "float64", **starts, **more}


def test_primary_capsules_are_linear_maps_of_each_place():
    layer = PrimaryMatrixCapsules(
        3, size=2, activation_bias=-1.0, pose_initializer=RANDOM, activation_initializer=RANDOM
    )
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 6)).astype("float32")
    pose, activation = layer(x)
    kernels = [np.asarray(w, "float64") for w in (layer.pose_kernel, layer.activation_kernel)]
    # Float32 sums of six terms.
    expected = (x @ kernels[0]).reshape(2, 3, 4, 3, 2, 2)
    np.testing.assert_allclose(pose, expected, rtol=1e-4, atol=1e-5)
    expected = 1 / (1 + np.exp(1 - x @ kernels[1]))
    np.testing.assert_allclose(activation, expected, rtol=1e-4, atol=1e-5)
    shapes = layer.compute_output_shape((None, 3, 4, 6))
    assert shapes == ((None, 3, 4, 3, 2, 2), (None, 3, 4, 3))


@pytest.mark.parametrize("strides", [1, 2])
def test_votes_are_the_poses_times_the_maps_of_the_window(strides):
    layer = ConvEMCapsules(3, kernel_size=2, strides=strides, **options())
    pose, activation = capsules()
    found = layer((pose, activation))
    kernel, votes = np.asarray(layer.kernel), np.asarray(layer.votes(pose))
    rows, columns = (3, 4) if strides == 1 else (2, 2)
    for p, (y, x) in enumerate(np.ndindex(rows, columns)):
        for k, (i, j) in enumerate(np.ndindex(2, 2)):
            matrices = pose[:, y * strides + i, x * strides + j]
            for child, parent in np.ndindex(TYPES, 3):
                expected = matrices[:, child] @ kernel[k, child, parent]
                np.testing.assert_allclose(
                    votes[:, p, k, child, parent], expected.reshape(2, 16), rtol=1e-12, atol=1e-14
                )
    assert [x.shape for x in found] == [(2, rows, columns, 3, 4, 4), (2, rows, columns, 3)]
    shapes = layer.compute_output_shape(((None, 4, 5, TYPES, 4, 4), (None, 4, 5, TYPES)))
    assert shapes == ((None, rows, columns, 3, 4, 4), (None, rows, columns, 3))


@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_the_layer_routes_its_votes_with_its_own_betas(implementation):
    how = {
        "routing_iterations": 2,
        "schedule": "linear",
        "inverse_temperature": 0.5,
        "damping": 0.1,
    }
    layer = ConvEMCapsules(
        3, kernel_size=2, activation_scale=-2.0, implementation=implementation, **how, **options()
    )
    pose, activation = capsules()
    found = layer((pose, activation))
    fields = layer.fields(pose)
    seen = fields.gather(activation.reshape(2, 20, TYPES))
    expected = em_routing(
        layer.votes(pose), seen, layer.beta_u, -2 * np.asarray(layer.beta_a), fields,
        EMOptions(**how),
    )  # fmt: skip
    # Float64 sums in another order.
    np.testing.assert_allclose(found[0], np.reshape(expected.pose, found[0].shape), rtol=1e-9)
    np.testing.assert_allclose(found[1], np.reshape(expected.activation, found[1].shape), rtol=1e-9)


def test_only_training_is_compiled():
    layer = ConvEMCapsules(
        3, kernel_size=2, routing_iterations=1, implementation="xla", **options()
    )
    inputs = tuple(map(tf.constant, capsules()))
    layer(inputs)
    step = tf.function(layer, autograph=False)
    for training in (False, True):
        graph = step.get_concrete_function(inputs, training=training).graph
        library = graph.as_graph_def().library
        assert training == any(function.attr["_XlaMustCompile"].b for function in library.function)


def test_variational_routing_is_of_the_layers_votes():
    how = {"routing_iterations": 2, "routing": "variational", "damping": 0.5}
    layer = ConvEMCapsules(3, kernel_size=2, activation_scale=-2.0, **how, **options())
    pose, activation = capsules()
    layer.build((pose.shape, activation.shape))
    random, statistics = np.random.default_rng(1), []
    for normalization, types in (
        (layer.pose_normalization, TYPES), (layer.log_odds_normalization, 3),
    ):  # fmt: skip
        means, variances = random.normal(size=types), random.uniform(0.5, 2, size=types)
        normalization.moving_mean.assign(means)
        normalization.moving_variance.assign(variances)
        statistics.append((means, np.sqrt(variances + 1e-5)))
    found, fields = layer((pose, activation)), layer.fields(pose)
    seen = fields.gather(activation.reshape(2, 20, TYPES))
    (mean, deviation), (log_odds_mean, log_odds_deviation) = statistics
    normal = (pose - mean[:, None, None]) / deviation[:, None, None]
    expected = variational_routing(
        layer.votes(normal), seen, layer.beta_u, -2 * np.asarray(layer.beta_a), fields,
        VariationalOptions(routing_iterations=2),
    )  # fmt: skip
    activations = expit((logit(expected.activation) - log_odds_mean) / log_odds_deviation)
    # Float64 sums in another order.
    np.testing.assert_allclose(found[0], np.reshape(expected.pose, found[0].shape), rtol=1e-9)
    np.testing.assert_allclose(found[1], np.reshape(activations, found[1].shape), rtol=1e-9)
    trained = logit(np.asarray(layer((pose, activation), training=True)[1]))
    np.testing.assert_allclose(trained.mean(axis=(0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(trained.std(axis=(0, 1, 2)), 1, rtol=1e-3)
    assert np.abs(np.asarray(layer.pose_normalization.moving_mean) - mean).max() > 0.01
    again = ConvEMCapsules.from_config(layer.get_config())
    assert again.routing == "variational"
    with pytest.raises(ValueError, match="`routing` must be 'em' or 'variational'"):
        ConvEMCapsules(3, routing="dynamic")


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("coordinates", [True, False])
def test_votes_for_classes_say_where_they_come_from(shared, coordinates):
    layer = EMCapsules(3, shared_weights=shared, coordinates=coordinates, **options())
    pose, activation = capsules()
    found = layer((pose, activation))
    votes, kernel = np.asarray(layer.votes(pose)), np.asarray(layer.kernel)
    assert kernel.shape == (*(() if shared else (20,)), TYPES, 3, 4, 4)
    for k, (y, x) in enumerate(np.ndindex(4, 5)):
        maps = kernel if shared else kernel[k]
        expected = np.einsum("bimn,ijno->bijmo", pose[:, y, x], maps)
        if coordinates:
            expected[..., 0, 3] += (y + 0.5) / 4
            expected[..., 1, 3] += (x + 0.5) / 5
        np.testing.assert_allclose(
            votes[:, 0, k], expected.reshape(2, TYPES, 3, 16), rtol=1e-12, atol=1e-14
        )
    assert [x.shape for x in found] == [(2, 1, 1, 3, 4, 4), (2, 1, 1, 3)]
    plain = EMCapsules.from_config({**layer.get_config(), "implementation": "reference"})
    plain.build([x.shape for x in (pose, activation)])
    plain.set_weights(layer.get_weights())
    for a, b in zip(found, plain((pose, activation)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_windows_and_shared_maps_take_images_of_any_size():
    conv, last = ConvEMCapsules(3, **options()), EMCapsules(4, **options())
    for height, width in ((4, 5), (6, 3)):
        pose, activation = last(conv(capsules(height, width)))
        assert pose.shape == (2, 1, 1, 4, 4, 4) and np.isfinite(activation).all()
    assert len(conv.weights) == len(last.weights) == 3


def test_routing_is_in_float32_in_half_precision():
    pose, activation = capsules()
    layer = ConvEMCapsules(3, dtype="mixed_bfloat16", kernel_initializer=RANDOM)
    found = layer((pose.astype("float32"), activation.astype("float32")))
    assert {keras.backend.standardize_dtype(x.dtype) for x in found} == {"bfloat16"}

    def rounded(x):
        return keras.ops.cast(keras.ops.cast(x, "bfloat16"), "float32")

    # The same layer of inputs and weights as half precision has them: all but its last rounding.
    whole = ConvEMCapsules.from_config({**layer.get_config(), "dtype": "float32"})
    whole.build([pose.shape, activation.shape])
    whole.set_weights([rounded(weight) for weight in layer.get_weights()])
    for half, full in zip(found, whole((rounded(pose), rounded(activation))), strict=True):
        np.testing.assert_array_equal(half, keras.ops.cast(full, "bfloat16"))


PROGRAM = """
import numpy as np
from keras_capsule_poe import *
inputs = keras.Input((9, 8, 1))
x = PrimaryMatrixCapsules(2, size=2)(keras.layers.Conv2D(4, 3, activation="relu")(inputs))
x = ConvEMCapsules(2, kernel_size=3, strides=2, routing_iterations=2)(x)
_, activation = EMCapsules(3, routing_iterations=2, inverse_temperature=1.0)(x)
model = keras.Model(inputs, keras.layers.Flatten()(activation))
model.compile(keras.optimizers.Adam(0.02), SpreadLoss())
x = np.random.default_rng(0).uniform(size=(6, 9, 8, 1)).astype("float32")
losses = model.fit(x, np.eye(3)[[0, 1, 2, 0, 1, 2]], epochs=5, verbose=0,
                   callbacks=[SpreadMargin(steps=1, first=0.9)]).history["loss"]
assert losses[-1] < losses[0], losses
how = {"routing_iterations": 2, "routing": "variational"}
_, activation = EMCapsules(3, **how)(PrimaryMatrixCapsules(2)(x))
assert np.isfinite(keras.ops.convert_to_numpy(activation)).all()

# A step that was compiled sees the margin of each step: nothing is learnt, so losses are known.
inputs = keras.Input((3,))
model = keras.Model(inputs, keras.layers.Dense(3, activation="sigmoid")(inputs))
model.compile(keras.optimizers.SGD(0.0), SpreadLoss())
seen = []
after = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs))
for epochs in (1, 2):
    model.fit(np.zeros((4, 3)), np.eye(3)[[0, 1, 2, 0]], batch_size=2, epochs=epochs, verbose=0,
              callbacks=[SpreadMargin(steps=5), after])
margins = np.array([0.2 + 0.7 * min(step / 5, 1) for step in range(6)])
on_jax = keras.backend.backend() == "jax"
if on_jax:
    np.testing.assert_allclose([logs["margin"] for logs in seen], margins, rtol=1e-5)
# Within an epoch logs are means over its batches.
losses = (2 * margins**2).reshape(3, 2)
losses[:, 1] = losses.mean(axis=1)
np.testing.assert_allclose([logs["loss"] for logs in seen], losses.ravel(), rtol=1e-5)

# Compiled anew, with another loss, it sees that one's.
model.compile(keras.optimizers.SGD(0.0), SpreadLoss())
seen.clear()
model.fit(np.zeros((4, 3)), np.eye(3)[[0, 1, 2, 0]], batch_size=2, epochs=1, verbose=0,
          callbacks=[SpreadMargin(steps=2), after])
if on_jax:
    np.testing.assert_allclose([logs["margin"] for logs in seen], [0.2, 0.55], rtol=1e-5)
np.testing.assert_allclose(seen[-1]["loss"], 0.2**2 + 0.55**2, rtol=1e-5)

# The whole model, whose capsules are routed an image at a time, and whose loss is its own.
from keras_capsule_poe.models.matrix_capsules import fused_em as em
em.AT_ONCE = 1
how = {"routing_iterations": 2, "inverse_temperature": 1.0}
layers = [PrimaryMatrixCapsules(2, 2), ConvEMCapsules(2, strides=2, **how), EMCapsules(3, **how)]
model = MatrixCapsNet(keras.layers.Conv2D(4, 3, activation="relu"), layers, (9, 8, 1))
model.build()
model.compile(keras.optimizers.Adam(0.02))
losses = model.fit(x, np.eye(3)[[0, 1, 2, 0, 1, 2]], epochs=12, verbose=0,
                   callbacks=[SpreadMargin(steps=4)]).history["loss"]
# After four steps the margin stands.
assert losses[-1] < losses[5] and abs(model.spread.margin - 0.9) < 1e-6, losses
"""


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.long), "torch"])
def test_they_train_on_other_backends(run_on, backend):
    run_on(backend, PROGRAM)


@pytest.mark.parametrize(
    "shapes",
    [
        ((None, 4, 5, 2, 4, 4), (None, 4, 5, 3)),
        ((None, 4, 5, 2, 4, 3), (None, 4, 5, 2)),
        ((None, None, 5, 2, 4, 4), (None, None, 5, 2)),
        (None, 4, 5, 2),
    ],
)
def test_other_shapes_are_refused(shapes):
    with pytest.raises(ValueError, match="ConvEMCapsules needs poses .* Received: input_shape="):
        ConvEMCapsules(3).build(shapes)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="`kernel_size` must be a positive integer"):
        ConvEMCapsules(3, kernel_size=0)
    with pytest.raises(ValueError, match="`compete` must be 'all'. Received: compete='places'"):
        EMCapsules(3, compete="places")
    with pytest.raises(ValueError, match="`routing_iterations` must be a positive integer"):
        EMCapsules(3, routing_iterations=0)
    with pytest.raises(ValueError, match="`coordinates` need poses of at least 2x2"):
        EMCapsules(3).build(((None, 2, 2, 1, 1, 1), (None, 2, 2, 1)))
    with pytest.raises(ValueError, match="`kernel_size` must fit"):
        ConvEMCapsules(3, kernel_size=5).build(((None, 4, 5, 2, 4, 4), (None, 4, 5, 2)))
