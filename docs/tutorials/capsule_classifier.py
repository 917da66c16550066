# %% [markdown]
# # A capsule classifier, and what routing adds
#
# CapsNet (Sabour et al., 2017) classifies images: the length of a class capsule is the probability of the class. This tutorial trains a small one
# with Keras' usual three steps. It then trains two baselines, because a good accuracy alone does not show that routing or capsules helped.

# %%
import numpy as np

import keras_capsule_poe as kcp

digits = kcp.data.load_images("digits")
x, y = digits.train.images, digits.train.labels
x_test, y_test = digits.test.images, digits.test.labels

# %% [markdown]
# ## Train
#
# `from_recipe` builds the network of a preset (a named set of settings, also called recipe). Labels are integers or one-hot rows. The loss is part of
# the model: margin loss and the reconstruction error of the decoder.

# %%
model = kcp.CapsNet.from_recipe("small", (28, 28, 1), 10)
model.compile("adam", metrics=["accuracy"])
history = model.fit(x, y, epochs=6, batch_size=32, verbose=2)

# %%
probabilities = model.predict(x_test, verbose=0)
print("accuracy", np.mean(probabilities.argmax(axis=1) == y_test))

# %% [markdown]
# `encode` gives the class capsules. The decoder draws an image from the capsule of a class.

# %%
model.encode(x_test[:5])["capsules"].shape

# %% [markdown]
# ## Baselines
#
# The same network without routing (uniform coupling coefficients), and a convolutional network with as many parameters. `kcp.train` also uses
# the preset's augmentation and schedule of learning rates, so the routed network is trained again.

# %%
settings = {"model": "capsnet", "recipe": "small", "epochs": 6, "batch_size": 32, "verbose": 0}
routed = kcp.train("digits", **settings)
uniform = kcp.train("digits", coefficients="uniform", **settings)
convolutional = kcp.train("digits", network="cnn", **settings)

# %%
right = {}
for name, each in [("routing", routed), ("uniform", uniform), ("no capsules", convolutional)]:
    right[name] = np.asarray(each.classify(x_test)["classes"]) == y_test
    print(f"{name:12} accuracy {right[name].mean():.3f}, {each.count_params():,} parameters")

# %% [markdown]
# ## Is the difference more than chance?
#
# McNemar's test counts the test images that only one of two models classifies rightly. A large p-value means that the difference may be chance. It does not prove that there is none.
# One seed and few test images say little: train with several seeds before you conclude anything.

# %%
from keras_capsule_poe.evaluation.classification import mcnemar

for name in ("uniform", "no capsules"):
    print(name, mcnemar(right["routing"], right[name]))
