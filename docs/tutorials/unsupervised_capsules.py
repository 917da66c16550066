# %% [markdown]
# # Unsupervised capsules in ten minutes
#
# A product of expert capsules learns without labels. Each capsule becomes an expert for one kind of image: it encodes such images, and it
# generates new ones. This tutorial trains a model on small pictures of digits, looks inside, and then loads a larger model that comes with the
# package. You need neither a GPU nor an internet connection.

# %%
import numpy as np

import keras_capsule_poe as kcp

# %% [markdown]
# ## Train
#
# The model takes images (N, H, W) or (N, H, W, C), as bytes or as floats in [0, 1]. The constructor takes settings, or the name of a preset. `fit`
# trains three parts one after another: an autoencoder, a capsule encoder, and a capsule decoder. This takes one to three minutes.

# %%
digits = kcp.data.load_images("digits")
x, x_test, labels = digits.train.images, digits.test.images, digits.test.labels
x.shape, x.dtype

# %%
model = kcp.ProductOfExpertCapsules(capsules=10, seed=0)
history = model.fit(x)

# %% [markdown]
# `fit` returns a Keras `History` for each part. The relative error is the squared error of held-out images, divided by their variance: of pixels
# for the autoencoder, of features for the capsules. 1 means that nothing was learned, 0 is perfect.

# %%
for stage, found in history.items():
    print(f"{stage:12} {found.history['val_relative_error'][-1]:.3f}")

# %% [markdown]
# ## Generate
#
# Every column shows one capsule. All other capsules are zero.

# %%
model.plot_samples()

# %% [markdown]
# The *prior* above draws a capsule from the paper's plain Gaussian. The *posterior* is a mixture of Gaussians, fitted to the codes of training images.

# %%
model.plot_samples(domain="posterior")

# %%
samples = model.sample(8, capsule=3, seed=1)
samples

# %% [markdown]
# ## Encode and decode
#
# `encode` gives the capsules of each image, their probabilities (the length of each capsule), and the free energy. Training lowers the free
# energy of images in comparison with their up-down passes. It is not a score of single images: noise and blank images have a lower one
# than digits. `model.outlier_scores(images)` tells how unusual an image is.

# %%
codes = model.encode(x_test)
codes

# %% [markdown]
# Each image has one winning capsule. Training never saw the labels, but the capsules tell digits apart:

# %%
winner = codes.winners
for capsule in range(10):
    counts = np.bincount(labels[winner == capsule], minlength=10)
    if counts.sum():
        print(f"capsule {capsule}: {counts.sum():3} images, mostly the digit {counts.argmax()}")

# %%
model.plot_reconstructions(x_test[:12])

# %% [markdown]
# ## Look at one capsule
#
# The dimensions of a capsule are properties of its images, such as slant or thickness. Each row below varies one of them.

# %%
model.plot_capsule(3)

# %%
model.plot_traversal(image=x_test[0])

# %% [markdown]
# ## Save, load, and use a model that is already trained
#
# `model.save("digits.keras")` and `kcp.load("digits.keras")` keep everything. Two models come with the package. A model as the last value of a cell
# shows its samples.

# %%
clothes = kcp.load("fashion_mnist")
clothes
