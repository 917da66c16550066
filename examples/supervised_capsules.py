"""Supervised capsules: a classifier of digits from this package's layers and its margin loss.

Shows capsule layers in a plain Keras model, trained by backpropagation, saved to one file and
loaded again in Keras' safe mode. Runs in seconds, on TensorFlow or on Jax:

    python examples/supervised_capsules.py
    KERAS_BACKEND=jax python examples/supervised_capsules.py
"""

import tempfile
from pathlib import Path

import keras
import numpy as np

from keras_capsule_poe import CapsuleLength, MarginLoss, PrimaryCapsules, RoutingLayer
from keras_capsule_poe.data import load_images

EPOCHS = 3

keras.utils.set_random_seed(0)
data = load_images("digits", image_size=20)
(x, y), (x_test, y_test) = ((part.images / 255, part.labels) for part in (data.train, data.test))

inputs = keras.Input((20, 20, 1))
features = keras.layers.Conv2D(32, 5, strides=2, activation="relu")(inputs)
features = keras.layers.Conv2D(32, 5, strides=2, activation="relu")(features)
capsules = PrimaryCapsules(8, center=False)(features)
digits = RoutingLayer(10, 16)(capsules)  # a capsule a class; its length is its probability
model = keras.Model(inputs, CapsuleLength()(digits))
model.compile(keras.optimizers.Adam(0.003), MarginLoss(), metrics=["categorical_accuracy"])
model.fit(x, keras.utils.to_categorical(y, 10), batch_size=50, epochs=EPOCHS, verbose=2)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.keras"
    model.save(path)
    again = keras.models.load_model(path, safe_mode=True)

lengths = again.predict(x_test, verbose=0)
print(f"Backend {keras.backend.backend()}")
print(f"Test accuracy {np.mean(lengths.argmax(axis=-1) == y_test):.3f}")
