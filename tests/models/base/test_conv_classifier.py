"""The convolutional control: its loss by hand, what it answers, any size, saved.

Rejected: the cross-entropy of one label of two; probabilities that are logits; dropout that is on
when it answers; a network of any size that takes one.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe import ConvClassifier

SHAPE, CLASSES = (8, 9, 2), 3


def network(any_size=False, view=None):
    start = keras.initializers.RandomNormal(stddev=0.5, seed=1)
    pooling = keras.layers.GlobalAveragePooling2D if any_size else keras.layers.Flatten
    layers = [
        keras.layers.Conv2D(4, 3, activation="relu", kernel_initializer=start),
        pooling(),
        keras.layers.Dropout(0.5, seed=0),
        keras.layers.Dense(CLASSES, kernel_initializer=start),
    ]
    model = ConvClassifier(keras.Sequential(layers), SHAPE, any_size, view)
    model.build()
    return model


def images(n=4, shape=SHAPE):
    return np.random.default_rng(0).uniform(size=(n, *shape)).astype("float32")


def softmax(logits):
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def test_the_loss_is_the_cross_entropy_of_equal_labels():
    model, x = network(), images()
    labels = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]], "float32")
    logits = np.asarray(model(x), "float64")
    shares = labels / labels.sum(axis=1, keepdims=True)
    expected = -(shares * np.log(softmax(logits))).sum(axis=1).mean()
    assert float(model.compute_loss(x, labels, logits)) == pytest.approx(expected, rel=1e-5)
    # As of a `CapsNet`, labels may come with the parts of an image.
    found = float(model.compute_loss(x, (labels, None, None), logits))
    assert found == pytest.approx(expected, rel=1e-5)


def test_it_learns_and_counts_what_it_names():
    model, x = network(), images(30)
    labels = np.eye(CLASSES)[np.arange(30) % CLASSES]
    x /= 6
    x[np.arange(30), 0, np.arange(30) % CLASSES] = 1
    model.compile(keras.optimizers.Adam(0.02), jit_compile=False)
    history = model.fit(x, labels, epochs=20, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] / 2
    named = np.asarray(model.classify(x)["classes"])
    found = model.evaluate(x, labels, batch_size=30, verbose=0, return_dict=True)
    assert found["accuracy"] == pytest.approx(np.mean(named == labels.argmax(axis=1)))


def test_what_it_answers_and_after_loading(tmp_path):
    model, x = network(view=keras.layers.CenterCrop(5, 5)), images()
    found = model.classify(x)
    middle = x[:, 1:6, 2:7]
    expected = softmax(np.asarray(model.network(middle, training=False)))
    np.testing.assert_allclose(found["probabilities"], expected, rtol=1e-5)
    assert np.array_equal(found["classes"], expected.argmax(axis=1))
    assert list(model.ENDPOINTS) == ["classify"]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", compile=False)
    again = loaded.classify(x)["probabilities"]
    np.testing.assert_allclose(again, found["probabilities"], rtol=1e-6)
    assert loaded.image_shape == SHAPE and not loaded.any_size


def test_images_of_any_size():
    model = network(any_size=True)
    wide = images(shape=(8, 18, 2))
    assert model.classify(wide)["probabilities"].shape == (4, CLASSES)


def test_a_part_must_be_a_layer():
    with pytest.raises(ValueError, match="`network` must be a Keras layer. Received: network=3"):
        ConvClassifier(3, SHAPE)


def test_an_image_of_no_class_has_no_share_in_the_loss():
    """Rejects the NaN of zero over zero."""
    model, x = network(), images()
    labels = np.array([[0, 0, 0], [0, 1, 1], [0, 0, 1], [1, 0, 0]], "float32")
    logits = np.asarray(model(x), "float64")
    rest = float(model.compute_loss(x[1:], labels[1:], logits[1:]))
    assert float(model.compute_loss(x, labels, logits)) == pytest.approx(rest * 3 / 4, rel=1e-5)
