"""The network of matrix capsules: loss and masks by hand, what it answers, trained, saved, served.

Rejected: a class by the length of its pose; a loss of other activations; a decoder of all poses;
a margin that stays; a decoder that is not saved.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import (
    CapsNet,
    ConvEMCapsules,
    DenseDecoder,
    EMCapsules,
    MatrixCapsNet,
    PrimaryMatrixCapsules,
    SpreadLoss,
    SpreadMargin,
)
from keras_capsule_poe.serving import export_saved_model

SHAPE, CLASSES, SIZE = (9, 8, 2), 3, 2
LABELS = np.eye(CLASSES, dtype="float32")[[0, 2, 1, 1]]


def network(decoder=True, **options):
    start = keras.initializers.RandomNormal(stddev=0.5, seed=1)
    # A large temperature, so that activations differ.
    how = {"routing_iterations": 2, "inverse_temperature": 0.5, "kernel_initializer": start}
    layers = [
        PrimaryMatrixCapsules(2, SIZE, pose_initializer=start, activation_initializer=start),
        ConvEMCapsules(2, kernel_size=3, strides=2, **how),
        EMCapsules(CLASSES, activation_initializer=start, **how),
    ]
    features = keras.layers.Conv2D(4, 3, activation="relu", kernel_initializer=start)
    decoder = DenseDecoder(SHAPE, (6,), kernel_initializer=start) if decoder else None
    model = MatrixCapsNet(features, layers, SHAPE, decoder=decoder, **options)
    model.build()
    return model


def images(n=4, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, *SHAPE)).astype("float32")


def by_hand(model, x):
    """Poses and activations of classes, layer by layer."""
    found = model.features(x)
    for layer in model.capsule_layers:
        found = layer(found)
    pose, activation = (np.asarray(part, "float64") for part in found)
    return pose.reshape(-1, CLASSES, SIZE**2), activation.reshape(-1, CLASSES)


def test_the_loss_is_the_spread_and_the_summed_error_of_the_labels_poses():
    x = images()
    model = network(reconstruction_weight=0.01, loss=SpreadLoss(0.5))
    pose, activation = by_hand(model, x)
    assert np.any(activation.argmax(axis=1) != LABELS.argmax(axis=1)), "the mask would not matter"
    decoded = np.asarray(model.decoder(pose * LABELS[..., None]), "float64")
    error = ((decoded - x) ** 2).sum(axis=(1, 2, 3)).mean()
    right = (LABELS * activation).sum(axis=1, keepdims=True)
    spread = ((1 - LABELS) * np.maximum(0.5 - (right - activation), 0) ** 2).sum(axis=1).mean()
    loss = float(model.compute_loss(x, LABELS, model(x)))
    assert loss == pytest.approx(spread + 0.01 * error, rel=1e-5)


def test_what_it_answers():
    model, x = network(), images()
    pose, activation = by_hand(model, x)
    chosen = activation.argmax(axis=1)
    assert np.any(np.linalg.norm(pose, axis=-1).argmax(axis=1) != chosen)
    found = model.classify(x)
    # Float32, in other shapes.
    np.testing.assert_allclose(found["probabilities"], activation, rtol=1e-5)
    assert np.array_equal(found["classes"], chosen)
    np.testing.assert_allclose(model.encode(x)["capsules"], pose, rtol=1e-4, atol=1e-6)
    kept = np.eye(CLASSES)[chosen][..., None]
    alone = model.reconstruct(x)["images"]
    np.testing.assert_allclose(alone, model.decoder(pose * kept), rtol=1e-4, atol=1e-6)
    moved = model.traverse(x[:2])
    assert moved["images"].shape == (2, SIZE**2, 11, *SHAPE)
    change = np.zeros((CLASSES, SIZE**2))
    change[chosen[0], 1] = 0.25
    expected = model.decoder(((pose[:1] + change) * kept[:1]).astype("float32"))
    np.testing.assert_allclose(moved["images"][0, 1, -1], expected[0], rtol=1e-4, atol=1e-6)
    shapes = [tuple(part.shape for part in each) for each in model.layer_by_layer(x)]
    assert shapes == [
        ((4, 7, 6, 2, 2, 2), (4, 7, 6, 2)),
        ((4, 3, 2, 2, 2, 2), (4, 3, 2, 2)),
        ((4, 1, 1, 3, 2, 2), (4, 1, 1, 3)),
    ]


def test_couplings_are_those_to_the_classes():
    """Rejects couplings of another layer, and shares over the children."""
    model, x = network(), images()
    assert model.routing_iterations == 2
    children = model.layer_by_layer(x)[-2]
    assignment = np.asarray(model.capsule_layers[-1].route(children).assignment)
    found = np.asarray(model.couplings(x))
    # Two types at 3 x 2 places.
    assert found.shape == (4, 2, 12, CLASSES)
    np.testing.assert_allclose(found[:, 0], 1 / CLASSES, rtol=1e-6)
    np.testing.assert_allclose(found[:, 1], assignment.reshape(4, 12, CLASSES), rtol=1e-5)
    moved = np.abs(np.diff(np.log(found.astype("float64")), axis=1)).mean(axis=(2, 3))
    # Float32 logarithms of what is near a third.
    np.testing.assert_allclose(model.coupling_changes(x), moved, rtol=1e-3)


def test_of_each_layer_the_capsule_that_gives_most_is_followed():
    """Rejects couplings to another parent or of another window, and the most active capsule."""
    model, x = network(), images()
    classes = np.array([0, 2, 1, 1])
    primary, first, last = model.layer_maps(x, classes).values()
    assert list(model.layer_maps(x, classes)) == [layer.name for layer in model.capsule_layers]
    found = model.layer_by_layer(x)
    for maps, (_, activation) in zip((primary, first, last), found, strict=True):
        np.testing.assert_array_equal(maps["activation"], activation)
    np.testing.assert_array_equal(last["followed"], classes)
    coupling = np.asarray(model.couplings(x))
    for b, j in enumerate(classes):
        np.testing.assert_allclose(
            first["coupling"][b], coupling[b, :, :, j].reshape(2, 3, 2, 2), rtol=1e-6
        )
        given = coupling[b, -1, :, j].reshape(3, 2, 2) * found[1][1][b]
        assert int(first["followed"][b]) == np.argmax(given)
    assignment = np.asarray(model.capsule_layers[1].route(found[0]).assignment)
    for b, followed in enumerate(np.asarray(first["followed"])):
        row, column, j = np.unravel_index(followed, (3, 2, 2))
        expected = np.full((7, 6, 2), np.nan)
        window = assignment[b, 2 * row + column, :, :, j].reshape(3, 3, 2)
        expected[2 * row : 2 * row + 3, 2 * column : 2 * column + 3] = window
        np.testing.assert_allclose(primary["coupling"][b, -1], expected, rtol=1e-6)
        given = expected * found[0][1][b]
        assert int(primary["followed"][b]) == np.nanargmax(given)


def test_it_learns_while_the_margin_grows_and_is_saved(tmp_path):
    model, x = network(), images(12)
    labels = LABELS[np.arange(12) % 4]
    model.compile(keras.optimizers.Adam(0.02), jit_compile=False)
    rising = SpreadMargin(steps=30)
    # Sixty steps of all images are an epoch here: each epoch has a pipeline made, in 50 ms.
    often = [np.tile(part, (60, *(1,) * (part.ndim - 1))) for part in (x, labels)]
    how = {"batch_size": 12, "shuffle": False, "callbacks": [rising], "verbose": 0}
    assert set(model.fit(*often, **how).history) == {
        "accuracy", "loss", "class_loss", "squared_error",
    }  # fmt: skip
    # Twelve images of noise are learnt by heart; a guess names a third of them.
    named = np.asarray(model.classify(x)["classes"])
    assert np.mean(named == labels.argmax(axis=1)) > 0.9
    assert model.spread.margin == pytest.approx(0.9)
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras", safe_mode=True)
    for a, b in zip(model(x), again(x), strict=True):
        np.testing.assert_array_equal(a, b)
    assert again.spread.margin == pytest.approx(0.9) and again.decoder is not None


@pytest.mark.long
def test_it_is_served(tmp_path):
    model, x = network(), images(12)
    version = export_saved_model(model, tmp_path / "served", card={})
    served = tf.saved_model.load(str(version))
    for name in ("classify", "encode", "reconstruct", "traverse"):
        found, expected = getattr(served, name)(x[:3]), getattr(model, name)(x[:3])
        assert set(found) == set(expected)
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5)


def test_bad_parts_are_refused():
    with pytest.raises(ValueError, match="`features` must be a Keras layer. Received: features=3"):
        MatrixCapsNet(3, [], SHAPE)
    places = MatrixCapsNet(keras.layers.Conv2D(4, 3), [PrimaryMatrixCapsules(2)], SHAPE)
    with pytest.raises(ValueError, match="The last of `layers` must have a single place.*7x6"):
        places.build()
    with pytest.raises(ValueError, match="without a decoder makes no images"):
        network(decoder=False).reconstruct(images())
    assert CapsNet.LOSS == "margin_loss"
    assert set(network(decoder=False).ENDPOINTS) == {"classify", "encode"}


def test_the_margin_that_grows_is_that_of_the_loss_in_use():
    """Rejects the margin of a loss that the model was compiled with."""
    model = network()
    model.compile("sgd", loss=SpreadLoss())
    rising = SpreadMargin(steps=10)
    rising.set_model(model)
    rising.on_train_batch_begin(0)
    assert model.spread.margin == pytest.approx(0.2) and model.loss.margin == pytest.approx(0.9)


@pytest.mark.some(2)
@pytest.mark.parametrize("loss", ["mse", SpreadLoss(0.5)])
def test_a_loss_that_would_not_be_heeded_is_refused(loss):
    model = network()
    model.compile("sgd", loss=loss, jit_compile=False)
    with pytest.raises(ValueError, match="MatrixCapsNet has a loss of its own.*no `loss`"):
        model.fit(images(), LABELS, verbose=0)
