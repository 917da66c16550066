"""Models fitted on NumPy arrays: no folder, no loader, no reporter, as in a notebook's cells.

python examples/fit_on_arrays.py
"""

import keras

from keras_capsule_poe import CapsuleEncoder, CapsulePoE, ConvAutoencoder, PrimaryCapsules
from keras_capsule_poe.data import load_images

EPOCHS = 6

images = (load_images("digits", limit=500).train.images / 255).astype("float32")  # (N, H, W, C)

autoencoder = ConvAutoencoder(filters=16)
autoencoder.compile("adam", "binary_crossentropy", jit_compile=False)
autoencoder.fit(images, batch_size=50, epochs=EPOCHS, verbose=2)
features = keras.ops.convert_to_numpy(autoencoder.encode(images))

primary = PrimaryCapsules(8, target_length=0.14)
primary.adapt([features])  # their mean and scale; any iterable of batches
x = keras.ops.convert_to_numpy(primary(features))

encoder = CapsuleEncoder(CapsulePoE(capsules=5, dim=4, temperature=0.1, scale=5.0))
encoder.build(x.shape)
encoder.start_from_images(x[: 5 * 4], length=0.5)  # small noise would take longer
encoder.compile(keras.optimizers.SGD(0.2, momentum=0.9), jit_compile=False)
encoder.fit(x, batch_size=50, epochs=EPOCHS, verbose=2)  # contrastive divergence, no labels

print("codes", encoder.predict(x, verbose=0).shape)
