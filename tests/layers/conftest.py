"""A small layer of expert neurons, and data for it."""

import numpy as np
import pytest

from keras_capsule_poe import NeuronPoE

I, D, J, E = 3, 2, 2, 2


def layer(routing="fixed", visible="bernoulli", centering=False, seed=0, **kwargs):
    """A small layer in float64, all of whose weights are random and strong."""
    options = {"implementation": "reference", "dtype": "float64", "coefficient_sum": 2.0, **kwargs}
    options["softmax_over"] = options.get("softmax_over", "outputs")
    experts = NeuronPoE(J, E, visible=visible, routing=routing, centering=centering, **options)
    experts.build((None, I, D))
    random = np.random.default_rng(seed)
    for weight in experts.weights:
        low = 0.2 if weight.name in ("hidden_offset", "mean_coefficients") else -0.8
        weight.assign(random.uniform(low, 0.8, size=weight.shape))
    experts.kernel.assign(random.normal(size=experts.kernel.shape))
    return experts


def images(visible="bernoulli", n=7, seed=1):
    random = np.random.default_rng(seed)
    v = random.uniform(size=(n, I, D))
    return {"bernoulli": v > 0.5, "unit": v, "gaussian": 3 * v - 1}[visible].astype("float64")


@pytest.fixture(scope="session")
def neuron_layer():
    """Function that builds a small layer, see `layer`."""
    return layer


@pytest.fixture(scope="session")
def neuron_images():
    """Function that gives data of a kind of visible neurons, see `images`."""
    return images
