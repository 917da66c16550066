"""Unsupervised capsules of a NumPy array: train, generate, encode, look.

python examples/fit_on_arrays.py
"""

import keras_capsule_poe as kcp

images = kcp.data.load_images("digits", limit=500).train.images  # uint8, (N, H, W, C)

model = kcp.ProductOfExpertCapsules(capsules=5, autoencoder={"filters": 16})
history = model.fit(images, epochs=20, verbose=2)
error = history["decoder"].history["val_relative_error"][-1]
print(f"relative error of held-out images' primary capsules: {error:.2f}; 1 means nothing learned")

print(model.sample(8, capsule=3))  # images of one capsule
print(model.encode(images))
model.plot_samples().savefig("samples.pdf")
print("Look at samples.pdf: one column per capsule")
