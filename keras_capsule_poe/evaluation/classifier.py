"""The small classifier that judges samples: trained here, with a fixed seed, and cached."""

import os
import warnings
from pathlib import Path

import keras
import numpy as np

from keras_capsule_poe.data import batches, steps_per_epoch
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse, RunFailed
from keras_capsule_poe.io.files import beside

# Part of the cached file's name: another number for another architecture or training.
VERSION = 1
SEED, EPOCHS, BATCH = 0, 4, 128


class Judge:
    """A classifier of images and the feature space of its last hidden layer.

    Args:
        model: Keras model from images to (features (B, K), logits (B, classes)).
        labels: Array (classes,), the label that each class stands for, in order.

    Examples:

    >>> inputs = keras.Input((2, 2, 1))
    >>> features = keras.layers.Flatten()(inputs)
    >>> model = keras.Model(inputs, [features, keras.layers.Dense(3)(features)])
    >>> [x.shape for x in Judge(model, np.arange(3)).judge(np.zeros((5, 2, 2, 1)))]
    [(5, 4), (5, 3)]
    """

    def __init__(self, model, labels):
        import tensorflow as tf

        self.model = model
        self.labels = labels

        def both(batch):
            features, logits = model(batch, training=False)
            return {"features": features, "classes": keras.ops.softmax(logits)}

        self._both = tf.function(both, reduce_retracing=True, autograph=False)

    def judge(self, images):
        """Features and class probabilities of images.

        Args:
            images: Array (N, H, W, C), uint8, or pixels in [0, 1].

        Returns:
            Arrays (N, K) and (N, classes), float32.
        """
        found = map_batches(self._both, images)
        return found["features"], found["classes"]

    def accuracy(self, images):
        """Share of an `ImageSet` with labels that the classifier names rightly."""
        named = self.labels[self.judge(images.images)[1].argmax(axis=-1)]
        return float(np.mean(named == images.labels))


def train_judge(images, cache=None):
    """The `Judge` of a labelled training set, from the cache if it was trained before.

    Args:
        images: `ImageSet` with labels.
        cache: Folder; `None`: `CAPSPOE_CACHE`, or `~/.cache/keras_capsule_poe`.

    Warns:
        UserWarning: If the cache cannot be written.

    Raises:
        BadUse: If there are no labels.
    """
    if images.labels is None:
        raise BadUse("A classifier needs labels. Received: images without labels")
    labels, classes = np.unique(images.labels, return_inverse=True)
    path = _cache_path(images, len(labels), cache)
    try:
        return Judge(keras.models.load_model(path, compile=False), labels)
    except Exception:
        # It is not there, or damaged in one of many ways: its file's sums are checked.
        pass
    model = _fit(images, classes.astype("int32"), len(labels))
    try:
        with beside(path, suffix=".keras") as temporary:
            model.save(temporary)
    except RunFailed as error:
        # It only saves time: what was asked for does not hang on it.
        warnings.warn(f"the classifier is not kept for later: {error}", stacklevel=2)
    return Judge(model, labels)


def _cache_path(images, classes, cache):
    """A file for these images with these labels, and for no others."""
    home = os.environ.get("CAPSPOE_CACHE") or Path.home() / ".cache" / "keras_capsule_poe"
    return Path(cache or home) / (
        f"classifier-{VERSION}-{images.fingerprint}-{classes}-{images.label_fingerprint}.keras"
    )


def _fit(images, labels, classes):
    model = _classifier(images.image_shape, classes)
    trainer = keras.Model(model.input, model.output[1])
    steps = steps_per_epoch(len(images), BATCH)
    rate = keras.optimizers.schedules.CosineDecay(2e-3, EPOCHS * steps)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.Adam(rate), loss, jit_compile=False)
    stream = batches((images.images, labels), batch_size=BATCH, seed=SEED, epochs=EPOCHS)
    trainer.fit(stream, epochs=EPOCHS, steps_per_epoch=steps, shuffle=False, verbose=0)
    return model


def _classifier(image_shape, classes):
    layers, seeds = keras.layers, iter(range(SEED, SEED + 10))

    def start():
        return keras.initializers.HeNormal(seed=next(seeds))

    inputs = keras.Input(image_shape)
    x = inputs
    for filters in (32, 64, 128):
        x = layers.Conv2D(
            filters, 3, strides=2, padding="same", activation="relu", kernel_initializer=start()
        )(x)
    x = layers.Dropout(0.3, seed=SEED)(layers.Flatten()(x))
    features = layers.Dense(64, activation="relu", kernel_initializer=start())(x)
    return keras.Model(
        inputs, [features, layers.Dense(classes, kernel_initializer=start())(features)]
    )
