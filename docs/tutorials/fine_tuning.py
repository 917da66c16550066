# %% [markdown]
# # Fine-tune a model on your own images
#
# Two models come with the package, one of digits and one of clothes. `fit` goes on from the weights that a model has. A few epochs on your own images
# then do what otherwise takes many. This tutorial needs neither a GPU nor an internet connection.

# %%
import numpy as np

import keras_capsule_poe as kcp

# %% [markdown]
# ## Your images
#
# Any array (N, H, W) or (N, H, W, C) of the model's image shape will do, as bytes or as floats in [0, 1]. Here we take the digits of scikit-learn.
# They were written by other people and scanned with fewer pixels than MNIST, so that they look blurred.

# %%
digits = kcp.data.load_images("digits", limit=400)
x, x_test = digits.train.images, digits.test.images
x.shape

# %% [markdown]
# ## Three lines

# %%
model = kcp.load("mnist")
model.fit(x, epochs=2, verbose=0)
model.plot_samples(domain="posterior")

# %% [markdown]
# `fit` trains all parts of the model, one after another, each from its present weights. The settings are part of the model: those of its first training
# hold, except for the epochs given here. `model.settings.set("encoder.learning_rate", 0.05)` would change one.
#
# ## What the start is worth
#
# A new model with the same settings, trained for the same epochs, starts from noise.

# %%
new = kcp.load("mnist")
new.reset()
new.fit(x, epochs=2, verbose=0)


def error(model):
    """Return the squared error of reconstructed test images, relative to their variance."""
    decoded, images = model.reconstruct(x_test).images, x_test / 255
    return np.square(decoded - images).sum() / np.square(images - images.mean(axis=0)).sum()


print(f"fine-tuned {error(model):.2f}, from noise {error(new):.2f}")

# %%
model.plot_reconstructions(x_test[:12])

# %% [markdown]
# ## Keep a part
#
# Set `trainable` to False to keep a part as it is. A part that you give to the constructor is kept, too: the other parts are trained on what it computes.

# %%
kept = kcp.ProductOfExpertCapsules(autoencoder=kcp.load("mnist").autoencoder, capsules=10)
history = kept.fit(x, epochs=2, verbose=0)
list(history)

# %% [markdown]
# ## Interrupt, go on, start anew
#
# - If you interrupt `fit`, call it again with the same images: finished parts are not trained again.
# - With `folder="run"` the training goes on in another process, too. More `epochs` in the same folder go on from there.
# - `model.reset()` makes a model forget its weights, and keeps its settings.
#
# `model.save("mine.keras")` and `kcp.load("mine.keras")` keep the weights and the settings, so that you can go on later.
