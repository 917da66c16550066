"""A trained model in another program, which has TensorFlow and NumPy and not this package.

Loads a SavedModel, one version in a model's folder, and encodes, decodes and samples with it:

    python examples/saved_model_elsewhere.py saved_models/fashion_mnist/1
"""

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

folder = Path(sys.argv[1])
card = json.loads((folder / "model_card.json").read_text())
height, width, channels = card["image_shape"]
print(card["model"])

model = tf.saved_model.load(str(folder))  # keep the reference: without it its functions fail
images = np.random.default_rng(0).uniform(size=(4, height, width, channels)).astype("float32")

codes = model.encode(images)  # pixels in [0, 1]
print("capsules", codes["capsules"].shape, "probabilities", codes["probabilities"].shape)
print("decoded", model.decode(codes["capsules"])["images"].shape)
print("free energy, nats", model.free_energy(images)["free_energy"].numpy().round(2))
print("samples", model.sample(8, 0)["images"].shape)  # n, seed
print("samples of capsule 1", model.sample_capsule(1, 8, 0)["images"].shape)  # capsule, n, seed
