"""Trains models by Keras on one device, and on several logical ones under a strategy.

Run in a process of its own, since devices are set up before TensorFlow computes anything. Prints
for each named model the largest differences of its weights and of its metrics, as a line of JSON.

Usage: python tests/models/strategies_program.py NAME ... [refusals]
"""

import contextlib
import json
import sys

import numpy as np

from keras_capsule_poe.cli.terminal import import_tensorflow

import_tensorflow()

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

import keras_capsule_poe as kcp  # noqa: E402
from keras_capsule_poe.models.neurons.layers import NeuronMixture, NeuronPoE  # noqa: E402

# Steps of 5, 5 and one image: shares of two and three, and fewer images than devices.
IMAGES, BATCH, SHAPE, CLASSES = 11, 5, (8, 8, 1), 3
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.uniform(size=(IMAGES, *SHAPE)).astype("float32")
LARGE = RANDOM.uniform(size=(IMAGES, 20, 20, 1)).astype("float32")
PRIMARY = RANDOM.uniform(-0.4, 0.4, size=(IMAGES, 6, 4)).astype("float32")
BITS = RANDOM.integers(2, size=(IMAGES, 12)).astype("float32")
LABELS = np.arange(IMAGES) % CLASSES
# Blobs, for experts to differ.
LOW = RANDOM.uniform(size=(24, 14, 14, 1))
RANDOM_IMAGES = np.kron(LOW, np.ones((1, 2, 2, 1))).astype("float32")
WHOLE_LABELS = np.arange(24) % CLASSES
WEIGHTS = RANDOM.uniform(0, 3, IMAGES).astype("float32")
L2 = keras.regularizers.L2(0.05)


def start(seed, stddev=0.3):
    return keras.initializers.RandomNormal(stddev=stddev, seed=seed)


def experts(capsules=5, dim=3, **options):
    options = {"implementation": "reference", "kernel_initializer": start(1), **options}
    return kcp.CapsulePoE(capsules, dim, **options)


def encoder():
    layer = experts(use_routing_bias=True, activation_prior_weight=1.0, kernel_regularizer=L2)
    return kcp.CapsuleEncoder(layer, load_balancing=0.03), {"x": PRIMARY}


def decoder():
    codes = PRIMARY[:, :5, :3].copy()
    model = kcp.CapsuleDecoder(experts(6, 4), activity=2.0, offset=True, conditional=True)
    return model, {"x": codes, "y": PRIMARY}


def neurons():
    layer = NeuronPoE(4, 3, kernel_initializer=start(1), use_routing_bias=True)
    return kcp.NeuronExperts(layer, load_balancing=0.1), {"x": PRIMARY}


def mixture():
    layer = NeuronMixture(4, 3, kernel_initializer=start(1), use_routing_bias=True)
    return kcp.NeuronMixtureExperts(layer, load_balancing=0.1), {"x": PRIMARY}


def harmonium(algorithm):
    machine = kcp.RestrictedBoltzmannMachine(5, kernel_initializer=start(1))
    options = {"persistent_chains": 4, "temperatures": 3, "binarize": "stochastic"}
    return kcp.HarmoniumModel(machine, algorithm, **options), {"x": BITS}


def autoencoder():
    return kcp.ConvAutoencoder(filters=3), {"x": LARGE, "sample_weight": WEIGHTS}


def capsnet():
    primary = kcp.ConvCapsules(2, 4, 5, kernel_initializer=start(0), kernel_regularizer=L2)
    routing = kcp.RoutingLayer(
        CLASSES, 6, implementation="reference", kernel_initializer=start(1), kernel_regularizer=L2
    )
    parts = kcp.DenseDecoder(SHAPE, units=(8,), kernel_initializer=start(2))
    model = kcp.CapsNet(primary, routing, SHAPE, parts, reconstruction_weight=0.1)
    return model, {"x": PIXELS, "y": LABELS, "class_weight": {0: 1.0, 1: 3.0, 2: 0.5}}


def efficient():
    """Self-attention routing after normalized convolutions."""
    layers = [
        keras.layers.Conv2D(8, 3, strides=2, kernel_initializer=start(0)),
        keras.layers.BatchNormalization(),
        keras.layers.Reshape((-1, 8)),
        kcp.Squash("exponential"),
    ]
    routing = kcp.SelfAttentionRouting(
        CLASSES, 4, implementation="reference", kernel_initializer=start(1)
    )
    model = kcp.CapsNet(keras.Sequential(layers), routing, SHAPE)
    return model, {"x": PIXELS, "y": LABELS, "sample_weight": WEIGHTS}


def matrices():
    layers = [
        kcp.PrimaryMatrixCapsules(2, 2, pose_initializer=start(1), activation_initializer=start(2)),
        kcp.EMCapsules(
            CLASSES,
            routing_iterations=2,
            kernel_initializer=start(3),
            activation_initializer=start(4),
            implementation="reference",
        ),
    ]
    features = keras.layers.Conv2D(4, 5, activation="relu", kernel_initializer=start(0))
    parts = kcp.DenseDecoder(SHAPE, units=(8,), kernel_initializer=start(2))
    model = kcp.MatrixCapsNet(features, layers, SHAPE, None, parts, 0.1)
    return model, {"x": PIXELS, "y": LABELS, "callbacks": [kcp.SpreadMargin(9, model.spread)]}


def convolutions():
    layers = [
        keras.layers.Conv2D(4, 3, activation="relu", kernel_initializer=start(0)),
        keras.layers.BatchNormalization(),
        keras.layers.Flatten(),
        kcp.layers.BatchDropout(0.5, seed=0),
        keras.layers.Dense(CLASSES, kernel_initializer=start(1), kernel_regularizer=L2),
    ]
    model = kcp.ConvClassifier(keras.Sequential(layers), SHAPE)
    return model, {"x": PIXELS, "y": LABELS, "sample_weight": WEIGHTS}


MODELS = {
    "encoder": encoder,
    "decoder": decoder,
    "neurons": neurons,
    "mixture": mixture,
    "cd": lambda: harmonium("cd"),
    "pcd": lambda: harmonium("pcd"),
    "pt": lambda: harmonium("pt"),
    "autoencoder": autoencoder,
    "capsnet": capsnet,
    "efficient": efficient,
    "matrices": matrices,
    "convolutions": convolutions,
    "one device": capsnet,
    "three devices": capsnet,
}
DEVICES = {"one device": 1, "three devices": 3}
INSIDE = ("encoder", "capsnet")


WHOLE = {
    "whole capsules": lambda: kcp.ProductOfExpertCapsules(encoder=EXPERTS, **FEATURES),
    "whole neurons": lambda: kcp.ProductOfExpertNeurons(
        preset="mixture", experts=EXPERTS, **FEATURES
    ),
    "whole machine": lambda: kcp.ImageBoltzmannMachine(hidden=6, persistent_chains=4),
    "whole capsnet": lambda: kcp.CapsNet(preset="small", filters=3, classes=3),
    "whole matrices": lambda: kcp.MatrixCapsNet(preset="small", classes=3, **MATRIX),
}
EXPERTS = {"capsules": 3, "dim": 3}
FEATURES = {"autoencoder": {"filters": 4}, "compute": {"implementation": "reference"}}
MATRIX = {"filters": 3, "primary_types": 2, "types": 2, "last_types": 2, "size": 2}


def fitted(name, strategy=None):
    """Weights and metrics of a model of settings after training."""
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = WHOLE[name]()
    images = RANDOM_IMAGES[:, :16, :16] if name == "whole matrices" else RANDOM_IMAGES
    histories = model.fit(images, WHOLE_LABELS, epochs=1, batch_size=7, verbose=0)
    stage = list(histories)[-1]
    metrics = {key: value[-1] for key, value in histories[stage].history.items()}
    metrics.pop("seconds", None)
    model.encode(images[:3])
    return [v.numpy() for v in model.variables], metrics


def trained(name, strategy=None):
    """Weights and metrics of a model after training, under a strategy if one is given."""
    keras.utils.set_random_seed(0)
    scope = strategy.scope if strategy else contextlib.nullcontext
    with scope():
        model, data = MODELS[name]()
        # Clipped by its norm: parts of a gradient have another norm than their sum.
        sgd = keras.optimizers.SGD(0.05, momentum=0.5, global_clipnorm=0.3)
        loss = "mse" if name == "autoencoder" else None
        is_classifier = "y" in data and name != "decoder"
        metrics = {"metrics": ["categorical_crossentropy"]} if is_classifier else {}
        model.compile(sgd, loss, jit_compile=False, **metrics)
    # Some call `fit` inside of the scope, too.
    with scope() if name in INSIDE else contextlib.nullcontext():
        history = model.fit(**data, batch_size=BATCH, shuffle=False, verbose=0).history
        kept = {key: data[key] for key in ("x", "y", "sample_weight") if key in data}
        measured = model.evaluate(**kept, batch_size=BATCH, verbose=0, return_dict=True)
        predicted = model.predict(data["x"], batch_size=BATCH, verbose=0)
    # Older Keras gives arrays.
    measured = {f"test_{key}": float(value) for key, value in measured.items()}
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    variables += model.optimizer.variables
    # Every device has the same weights.
    for copies in [v.value.values for v in variables] if strategy else ():
        assert all(np.array_equal(copy, copies[0]) for copy in copies)
    values = [v.numpy() for v in variables] + keras.tree.flatten(predicted)
    return values, {**{key: value[-1] for key, value in history.items()}, **measured}


class Drifting(keras.layers.Layer):
    """A layer with a state that each replica would move by images of its own."""

    def build(self, input_shape):
        self.state = self.add_weight((), "zeros", trainable=False)

    def call(self, x):
        self.state.assign(keras.ops.mean(x))
        return x


def classifier(*layers):
    layers = [*layers, keras.layers.Flatten(), keras.layers.Dense(CLASSES)]
    model = kcp.ConvClassifier(keras.Sequential(layers), SHAPE)
    model.compile("sgd")
    return model


def refusals(strategy):
    """Yield the name of each refused use and the error."""
    data = {"x": PIXELS, "y": LABELS, "batch_size": 4, "verbose": 0}
    batches = tf.data.Dataset.from_tensor_slices((PIXELS, np.eye(CLASSES)[LABELS])).batch(4)
    central = tf.distribute.experimental.CentralStorageStrategy(["cpu:0", "cpu:1"])
    of_one = classifier()
    with central.scope():
        elsewhere = classifier()
    with strategy.scope():
        summed = kcp.ConvAutoencoder(filters=2)
        summed.compile("sgd", keras.losses.MeanSquaredError(reduction="sum"), jit_compile=False)
        plain, whole = classifier(), kcp.ProductOfExpertCapsules(capsules=2)
        dropping, drifting = classifier(keras.layers.Dropout(0.5)), classifier(Drifting())
        late = kcp.ConvClassifier(keras.Sequential([keras.layers.Flatten()]), SHAPE)
        several = classifier()
        several.compile("sgd", steps_per_execution=2)
    plain.build()
    late.compile("sgd")
    uses = {
        "numbers drawn for each call": lambda: dropping.fit(**data),
        "a state of its own": lambda: drifting.fit(**data),
        "a sum": lambda: summed.fit(LARGE, verbose=0),
        "another strategy": lambda: elsewhere.fit(**data),
        "a distributed dataset": lambda: plain.fit(
            strategy.experimental_distribute_dataset(batches), verbose=0
        ),
        "an optimizer of one device": lambda: late.fit(**data),
        "several steps in one call": lambda: several.fit(**data),
        "strategy.run": lambda: strategy.run(plain.train_step, args=((PIXELS, LABELS),)),
    }
    inside = {
        "a model of one device": lambda: of_one.fit(**data),
        "fit of parts inside of the scope": lambda: whole.fit(LARGE),
    }
    for scope, table in ((contextlib.nullcontext, uses), (strategy.scope, inside)):
        for name, use in table.items():
            try:
                with scope():
                    use()
                yield name, "not refused"
            except Exception as error:
                yield name, f"{type(error).__name__}: {error}"


def difference(one, two):
    return float(np.max(np.abs(one - two) / (1 + np.abs(one)), initial=0))


def main(names):
    device = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * 3
    tf.config.set_logical_device_configuration(device, parts)
    strategies = {
        n: tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(n)]) for n in (1, 2, 3)
    }
    for name in names:
        if name == "refusals":
            for each in refusals(strategies[2]):
                print(json.dumps(dict([each])), flush=True)
            continue
        train = fitted if name in WHOLE else trained
        weights, metrics = train(name)
        others, found = train(name, strategies[DEVICES.get(name, 2)])
        assert set(metrics) == set(found)
        gaps = {key: difference(value, found[key]) for key, value in metrics.items()}
        gap = max(difference(*pair) for pair in zip(weights, others, strict=True))
        print(json.dumps({name: {"weights": gap, "metrics": gaps}}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
