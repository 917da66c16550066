"""Classifiers in Keras' own training loop: labels, weights, metrics, predictions, export.

Rejected: weights (B, 1) that multiply errors (B,) to a matrix; metrics that get capsules; an
accuracy of one for images without labels, or of two classes where one is named; a stop at the best
accuracy that Keras cannot find; predictions that are capsules; and export that asks for a call.
"""

import warnings

import keras
import numpy as np
import pytest

from keras_capsule_poe import (
    CapsNet,
    ConvAutoencoder,
    MarginLoss,
    MatrixCapsNet,
    OrientationConcentration,
    RelativeError,
    SpreadLoss,
    registry,
)
from keras_capsule_poe.core.labels import named_rightly

SHAPE, CLASSES = (12, 12, 1), 4


def one_hot(labels):
    return np.eye(CLASSES, dtype="float32")[labels]


def test_integers_and_zeros_and_ones_are_the_same_labels(make, images, labels):
    found = []
    for y in (labels, labels[:, None], labels.astype("float32"), one_hot(labels)):
        keras.utils.set_random_seed(0)
        model = make()
        model.compile("adam")
        found.append(model.fit(images, y, shuffle=False, verbose=0).history)
    assert all(history == found[0] for history in found[1:])


def test_weights_of_both_shapes_count_alike(make, images, labels):
    weights, found = np.linspace(0, 1, len(images), dtype="float32"), []
    model = make()
    model.compile("sgd", weighted_metrics=["accuracy"])
    for given in (weights, weights[:, None]):
        logs = model.evaluate(images, labels, 16, 0, given, return_dict=True)
        found.append(logs)
    assert found[0] == found[1]
    # Weights are not dropped, either.
    assert (
        found[0]["loss"] < 0.8 * model.evaluate(images, labels, verbose=0, return_dict=True)["loss"]
    )


def test_weights_are_those_of_each_image(capsnet, images, labels):
    """The error by hand: the mean over images of weight times error."""
    model = capsnet()
    model.build()
    weights = np.linspace(0, 1, 16, dtype="float32")
    each = []
    for k in range(16):
        x, y = images[k : k + 1], one_hot(labels[k : k + 1])
        each.append(float(model.compute_loss(x, y, model(x))))
    for given in (weights, weights[:, None]):
        found = float(model.compute_loss(images, one_hot(labels), model(images), given))
        assert found == pytest.approx(np.mean(weights * each), rel=1e-5)


@pytest.mark.parametrize("loss", [MarginLoss(), SpreadLoss()])
def test_losses_take_columns_of_weights(loss):
    random = np.random.default_rng(0)
    y, p = one_hot(np.arange(6) % CLASSES), random.uniform(size=(6, CLASSES)).astype("float32")
    weights = random.uniform(size=6).astype("float32")
    assert float(loss(y, p, weights[:, None])) == float(loss(y, p, weights))


def test_metrics_take_columns_of_weights():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 6, 5, 3)).astype("float32")
    weights = random.uniform(size=6).astype("float32")
    for given in (weights, weights[:, None]):
        error, spread = RelativeError(), OrientationConcentration(5, 3)
        error.update_state(x, y, given)
        spread.update_state(x, given)
        axes = (1, 2)
        expected = (weights * ((x - y) ** 2).sum(axes)).sum() / (weights * (y**2).sum(axes)).sum()
        assert float(error.result()) == pytest.approx(expected, rel=1e-5)
        sums = np.linalg.norm((weights[:, None, None] * x).sum(0), axis=-1)
        sizes = (weights[:, None] * np.linalg.norm(x, axis=-1)).sum(0)
        assert float(spread.result()) == pytest.approx((sums / sizes).mean(), rel=1e-5)


def test_the_autoencoder_takes_columns_of_weights():
    images = np.random.default_rng(0).uniform(size=(6, 20, 20, 1)).astype("float32")
    model = ConvAutoencoder(filters=2)
    model.compile("sgd", "mse", weighted_metrics=["mae"], jit_compile=False)
    weights = np.linspace(0, 1, 6, dtype="float32")
    found = [
        model.evaluate(images, sample_weight=given, verbose=0, return_dict=True)
        for given in (weights, weights[:, None])
    ]
    assert found[0] == found[1]


METRICS = {
    "names": lambda: ["accuracy", "categorical_crossentropy", "sparse_categorical_accuracy"],
    "objects": lambda: [
        keras.metrics.AUC(name="auc"),
        keras.metrics.TopKCategoricalAccuracy(2, name="top2"),
        keras.metrics.SparseTopKCategoricalAccuracy(2, name="sparse_top2"),
        keras.metrics.F1Score(average="macro", name="f1"),
        keras.metrics.Precision(name="precision"),
    ],
}


@pytest.mark.parametrize("kind", METRICS)
def test_metrics_receive_class_probabilities(make, images, labels, kind):
    model = make()
    model.compile("adam", metrics=METRICS[kind]())
    logs = model.evaluate(images, labels, verbose=0, return_dict=True)
    p = model.predict(images, verbose=0)
    assert p.shape == (16, CLASSES)
    for metric in METRICS["objects"]() if kind == "objects" else []:
        is_sparse = metric.name.startswith("sparse")
        metric.update_state(labels if is_sparse else one_hot(labels), p)
        assert logs[metric.name] == pytest.approx(float(metric.result()), abs=1e-6)
    right = np.mean(p.argmax(axis=1) == labels)
    assert logs["accuracy"] == pytest.approx(right)
    if kind == "names":
        assert logs["sparse_categorical_accuracy"] == pytest.approx(right)


def test_predictions_are_those_of_classify(make, images):
    model = make()
    model.compile("adam")
    expected = model.classify(images)["probabilities"]
    np.testing.assert_allclose(model.predict(images, verbose=0), expected, rtol=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(images), expected, rtol=1e-5)


def test_a_name_of_the_model_is_refused(capsnet):
    metric = keras.metrics.CategoricalAccuracy(name="accuracy")
    with pytest.raises(ValueError, match="`metrics` must have other names.*Received: <Categ"):
        capsnet().compile("adam", metrics=[metric])


def test_training_stops_at_the_best_accuracy(make, images, labels):
    model = make()
    model.compile(keras.optimizers.SGD(0.0))
    stop = keras.callbacks.EarlyStopping("val_accuracy", patience=1)
    data = {"validation_data": (images, labels), "callbacks": [stop]}
    history = model.fit(images, labels, epochs=5, verbose=0, **data).history
    assert len(history["loss"]) == 2
    assert stop.monitor_op is keras.ops.greater


def test_compiled_metrics_are_saved(make, images, labels, tmp_path):
    model = make()
    model.compile("adam", metrics=["accuracy", "sparse_categorical_accuracy"])
    model.fit(images, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    first, second = (
        m.evaluate(images, labels, verbose=0, return_dict=True) for m in (model, again)
    )
    assert first == pytest.approx(second)


def test_metrics_in_micro_batches(capsnet, images, labels):
    model = capsnet()
    model.compile(keras.optimizers.SGD(0.0), metrics=[keras.metrics.AUC(name="auc")])
    whole = model.fit(images, labels, verbose=0).history
    model.microbatch = 3
    assert model.fit(images, labels, verbose=0).history == {
        name: pytest.approx(value, rel=1e-4) for name, value in whole.items()
    }


def test_all_labels_of_an_image_must_be_named_or_none():
    lengths = np.array([[0.3, 0.2], [0.3, 0.7], [0.6, 0.7], [0.6, 0.4]])
    labels = np.array([[0, 0], [0, 0], [1, 1], [1, 1]])
    assert np.asarray(named_rightly(labels, lengths)).tolist() == [1, 0, 1, 0]
    lengths = np.array([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8], [0.3, 0.3, 0.2]])
    labels = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0]])
    # The last is a tie, which names nothing.
    assert np.asarray(named_rightly(labels, lengths)).tolist() == [1, 0, 0]


def test_the_accuracy_of_one_class(capsnet, images):
    model = capsnet(classes=1)
    model.compile("adam")
    found = np.asarray(model.classify(images)["probabilities"])[:, 0] > 0.5
    for labels in (np.zeros(16), np.ones(16), np.arange(16) % 2):
        for y in (labels, labels[:, None]):
            logs = model.evaluate(images, y, verbose=0, return_dict=True)
            assert logs["accuracy"] == pytest.approx(np.mean(found == labels))


# Export and summary


def test_export_and_summary_need_no_call(make, images, tmp_path):
    model = make()
    model.build()
    model.summary(print_fn=lambda *_, **__: None)
    model.export(tmp_path / "built", verbose=False)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.export(tmp_path / "loaded", verbose=False)
    import tensorflow as tf

    expected = keras.tree.flatten(model(images))
    for name in ("built", "loaded"):
        served = tf.saved_model.load(tmp_path / name)
        for a, b in zip(keras.tree.flatten(served.serve(images)), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_export_and_summary_after_fit(make, images, labels, tmp_path):
    model = make()
    model.compile("adam")
    model.fit(images, labels, verbose=0)
    model.summary(print_fn=lambda *_, **__: None)
    model.export(tmp_path / "fitted", verbose=False)
    assert (tmp_path / "fitted/saved_model.pb").exists()


def test_tensorflow_lite_takes_a_built_model(conv_classifier):
    import tensorflow as tf

    model = conv_classifier()
    model.build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    assert len(converted) > 1000


# Memory


def test_many_images_are_taken_some_at_a_time(make, monkeypatch):
    """Rejects a graph of all images at once."""
    model, sizes = make(), []
    model.build()
    images = np.random.default_rng(0).uniform(size=(1203, *SHAPE)).astype("float32")
    call = type(model).call

    def watched(self, images, training=None):
        sizes.append(images.shape[0])
        return call(self, images, training=training)

    some = model.classify(images[-100:])
    monkeypatch.setattr(type(model), "call", watched)
    found = model.classify(images)
    assert max(sizes) <= 500 and sum(sizes) == 1203
    np.testing.assert_allclose(
        found["probabilities"][-100:], some["probabilities"], rtol=1e-4, atol=1e-6
    )
    assert found["classes"].shape == (1203,)


# Presets


@pytest.mark.parametrize(
    "kind, name, shape",
    [
        (CapsNet, "small", (28, 28, 1)),
        (CapsNet, "shared", (20, 20, 3)),
        pytest.param(MatrixCapsNet, "small", (16, 16, 1), marks=pytest.mark.long),
    ],
)
def test_networks_of_presets(kind, name, shape):
    model = kind.from_recipe(name, shape, 3)
    assert type(model) is kind and model.built and model.capsules == 3
    model.compile(optimizer="adam")
    x = np.random.default_rng(0).uniform(size=(6, *shape)).astype("float32")
    model.fit(x, np.arange(6) % 3, verbose=0)
    assert model.predict(x, verbose=0).shape == (6, 3)


def test_a_network_of_a_preset_is_that_of_the_command():
    theirs, found = CapsNet.of_shape(registry.settings("capsnet", "small"), (28, 28, 1)), []
    for _ in range(2):
        keras.utils.set_random_seed(1)
        found.append(CapsNet.from_recipe("small", (28, 28, 1), 10).get_weights())
    for a, b, other in zip(*found, theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.shape == other.shape


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        (("baseline", (28, 28, 1), 10), "`name` must be 'paper' or .*Received: name='baseline'"),
        (("small", (28, 28), 10), "`input_shape` must be height, width and channels"),
        (("small", (28, 28, 1), 0), "`classes` must be a positive integer. Received: classes=0"),
        (("small", (8, 8, 1), 3), "at least 17x17 pixels.*Received: 8x8"),
    ],
)
def test_presets_that_do_not_exist(arguments, wanted):
    with pytest.raises(ValueError, match=wanted):
        CapsNet.from_recipe(*arguments)


PROGRAM = """
import numpy as np
from keras_capsule_poe import *
x, y = np.random.default_rng(0).uniform(size=(16, 12, 12, 1)).astype("float32"), np.arange(16) % 4
primary = keras.Sequential([keras.layers.Conv2D(4, 3), ConvCapsules(2, 3, kernel_size=5)])
routing = RoutingLayer(4, 4, implementation="reference")
model = CapsNet(primary, routing, (12, 12, 1), DenseDecoder((12, 12, 1), (6,)))
model.compile("adam", metrics=["accuracy", keras.metrics.AUC(name="auc")])
stop = keras.callbacks.EarlyStopping("val_accuracy")
options = {"validation_data": (x, y[:, None]), "callbacks": [stop], "verbose": 0}
history = model.fit(x, y, sample_weight=np.ones((16, 1)), **options).history
assert {"val_accuracy", "val_auc", "squared_error"} < set(history)
p = model.predict((255 * x).astype("uint8"), verbose=0)
assert p.shape == (16, 4)
try:
    model.fit(255 * x, y, verbose=0)
except ValueError as error:
    assert "`x` must have finite values in [0, 1]" in str(error)
else:
    raise AssertionError("bytes were taken for pixels")
"""


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.long), "torch"])
def test_conventions_on_other_backends(run_on, backend):
    run_on(backend, PROGRAM)
