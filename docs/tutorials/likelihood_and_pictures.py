# %% [markdown]
# # Restricted Boltzmann machines, expert neurons and expert capsules compared
#
# All three are products of experts. They can be compared in two ways: by the likelihood of test images, and by
# the pictures that they draw. Likelihoods are comparable only if they are densities of the same variables.

# %%
import keras_capsule_poe as kcp
from keras_capsule_poe.evaluation.likelihood import likelihood, likelihood_text

digits = kcp.data.load_images("digits")

# %% [markdown]
# ## Restricted Boltzmann machines of binary pixels
#
# With 16 hidden units, log Z is a sum over 65,536 states, so the likelihood is exact. It is in nats per image; higher is better.

# %%
for hidden in (4, 16):
    machine = kcp.train("digits", model="rbm", recipe="small", hidden=hidden, verbose=0)
    found = likelihood(machine, digits, temperatures=100, chains=10)
    print(f"{hidden:3} hidden units: {found['nats']:.1f} nats per image")

# %% [markdown]
# For larger machines log Z is estimated by annealed importance sampling in both directions. The closer
# the two estimates are, the more reliable they are. This machine has the same binary pixels as the two above, so their nats can be compared.

# %%
machine = kcp.train("digits", model="rbm", recipe="small", hidden=100, verbose=0)
print(likelihood_text(likelihood(machine, digits, temperatures=500, chains=50)))

# %%
machine.plot_samples(20)

# %% [markdown]
# ## Expert neurons and expert capsules
#
# Both model the primary capsules of an autoencoder. The mixture of expert neurons has an exact density. Its nats are log densities of continuous
# variables, so they cannot be compared with the nats of binary pixels above.

# %%
small = {"autoencoder": {"filters": 32}}
neurons = kcp.train("digits", model="neurons", recipe="mixture", verbose=0, **small)
print(f"expert neurons: {likelihood(neurons, digits)['nats']:.0f} nats per image")

# %%
neurons.plot_samples()

# %%
capsules = kcp.train("digits", capsules=10, verbose=0, **small)
capsules.plot_samples()

# %% [markdown]
# The density of capsules is relative to a reference distribution, here a Gaussian with the second moments of the data. Its log Z is estimated by
# annealing. A value near zero says that the experts, with averaged coupling coefficients, add little to the Gaussian. So the samples of `capsules` come from
# routing and from the decoder, not from this density.

# %%
found = likelihood(capsules, digits, base="gaussian", temperatures=20, chains=64)
print(likelihood_text(found))
