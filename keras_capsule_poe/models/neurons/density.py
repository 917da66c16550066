"""Densities of products of expert neurons, for the routings that define one."""

import numpy as np
from keras import ops

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.flat_machines import flattened
from keras_capsule_poe.models.harmonium_density import HarmoniumDensity, in_blocks
from keras_capsule_poe.models.likelihood import Density, LikelihoodModel

# Number of images that estimate the means of independent neurons.
_FITTED = 2048
_ABOUT = "primary capsules, {} real numbers, a density"


class NeuronLikelihood(LikelihoodModel):
    """Mixin that gives a product of expert neurons its density."""

    def density(self, images, seed=0, **named):
        """Return the density of the visible neurons; raise `BadUse` if the routing defines none."""
        self.check_named(**named)
        if self.layer.routing == "mixture":
            return MixtureDensity(self)
        if self.layer.routing == "fixed":
            return NeuronDensity(self, images, seed)
        why = {
            "held": "its normaliser is another one for each image's routing",
            "latent": "it is summed over all parents of all parts; free_energy is its bound",
        }
        routing = self.layer.routing
        raise BadUse(
            f"Expert neurons with routing={routing!r} have no likelihood that can be had: "
            f"{why[routing]}. Train with routing 'mixture' or 'fixed'."
        )


class MixtureDensity(Density):
    """Exact density of the visible neurons of a `NeuronMixture`."""

    def __init__(self, model):
        self._model = model
        self.about = _ABOUT.format(_size(model))

    def log_weights(self, images):
        """Return log P (N,) of images (N, H, W, C), in nats."""
        return -in_blocks(lambda x: self._model.layer.free_energy(_visible(self._model, x)), images)

    def exact(self):
        """Return zero: the density is normalized."""
        return 0.0

    def bracket(self, temperatures, chains, seed):
        """Return None: log Z is exact and needs no annealing."""
        return None


class NeuronDensity(HarmoniumDensity):
    """Density of neurons with averaged routing, a Boltzmann machine fitted to uint8 images."""

    def __init__(self, model, images, seed=0):
        self._model, self._seed = model, seed
        self.about = _ABOUT.format(_size(model))
        self._v = in_blocks(lambda x: _visible(model, x), images[:_FITTED], "float32")
        self._base = model.layer.independent(self._v)[0].reshape(-1).astype("float32")

    def log_weights(self, images):
        """Return the negative free energy (N,) of images, in nats."""
        return -in_blocks(lambda x: self._model.layer.free_energy(_visible(self._model, x)), images)

    def _harmonium(self):
        return flattened(self._model.layer.harmonium())

    def _particles(self, chains):
        sent = self._model.layer.sent(self._v[np.arange(chains) % len(self._v)])
        return ops.reshape(sent, (chains, -1))


def _visible(model, images):
    return model.primary.to_capsules(model.to_features(images))


def _size(model):
    return int(ops.size(model.layer.visible_bias))
