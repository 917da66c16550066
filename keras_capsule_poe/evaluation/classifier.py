"""The evaluation classifier of samples, trained with a fixed seed and cached."""

import os
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np

from keras_capsule_poe.data import batches, steps_per_epoch
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse, RunFailed
from keras_capsule_poe.io.atomic import atomic_write

# Part of the cached file's name. Change it with the architecture or the training.
VERSION = 1
SEED, EPOCHS, BATCH = 0, 4, 128


class EvaluationClassifier:
    """Classifier of images with the feature space of its last hidden layer."""

    def __init__(self, model, labels):
        import tensorflow as tf

        self.model = model
        self.labels = labels

        def both(batch):
            features, logits = model(batch, training=False)
            return {"features": features, "classes": keras.ops.softmax(logits)}

        self._both = tf.function(both, reduce_retracing=True, autograph=False)

    def __call__(self, images):
        """Return float32 features (N, K) and class probabilities (N, classes) of images."""
        found = map_batches(self._both, images)
        return found["features"], found["classes"]

    def accuracy(self, images):
        """Return the accuracy on a labelled `ImageSet`."""
        named = self.labels[self(images.images)[1].argmax(axis=-1)]
        return float(np.mean(named == images.labels))


def evaluation_classifier(images, cache=None):
    """Return the evaluation classifier of a labelled `ImageSet`, from the cache if possible."""
    if images.labels is None:
        raise BadUse("A classifier needs labels. Received: images without labels")
    labels, classes = np.unique(images.labels, return_inverse=True)
    path = _cache_path(images, len(labels), cache)
    try:
        return EvaluationClassifier(keras.models.load_model(path, compile=False), labels)
    except Exception:
        # The file is missing or damaged, and damage raises many kinds of errors.
        pass
    model = _fit(images, classes.astype("int32"), len(labels))
    try:
        with atomic_write(path, suffix=".keras") as temporary:
            model.save(temporary)
    except RunFailed as error:
        # The cache only saves time, so a failed write is no error.
        warnings.warn(f"the classifier is not kept for later: {error}", stacklevel=2)
    return EvaluationClassifier(model, labels)


def _cache_path(images, classes, cache):
    """Return the path of the cache file, which is unique to these images and labels."""
    cache = cache or os.environ.get("CAPSPOE_CACHE")
    if not cache:
        try:
            cache = Path.home() / ".cache" / "keras_capsule_poe"
        except RuntimeError:
            # A user without a home folder, as in containers.
            cache = Path(tempfile.gettempdir()) / "keras_capsule_poe"
    return Path(cache) / (
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
