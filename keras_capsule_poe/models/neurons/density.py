"""The density of features under expert neurons, where their routing leaves one."""

import numpy as np
from keras import ops

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.flat_machines import flattened
from keras_capsule_poe.models.harmonium_density import HarmoniumDensity, in_blocks
from keras_capsule_poe.models.likelihood import Density, LikelihoodModel

# Enough images for the means of independent neurons.
_FITTED = 2048
_ABOUT = "primary capsules, {} real numbers, a density"


class NeuronLikelihood(LikelihoodModel):
    """Which densities a product of expert neurons has; to be mixed into it."""

    def density(self, images, seed=0, **named):
        """See `LikelihoodModel.density`; nothing is to be named.

        Raises:
            BadUse: If the routing is held or latent.
        """
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
    """p(v) of a mixture, which is exact.

    Args:
        model: `ProductOfExpertNeurons` of a `NeuronMixture`.
    """

    def __init__(self, model):
        self._model = model
        self.about = _ABOUT.format(_size(model))

    def log_weights(self, images):
        """log P of images (N, H, W, C), (N,), nats."""
        return -in_blocks(lambda x: self._model.layer.free_energy(_visible(self._model, x)), images)

    def exact(self):
        """Zero: the density is normalised."""
        return 0.0

    def bracket(self, temperatures, chains, seed):
        """None: nothing is annealed."""
        return None


class NeuronDensity(HarmoniumDensity):
    """p(v) of neurons with fixed coefficients, a Boltzmann machine.

    Args:
        model: `ProductOfExpertNeurons` with `routing="fixed"`.
        images: Array (N, H, W, C), uint8, training images, which also start the chains of the
            way back.
        seed: int.
    """

    def __init__(self, model, images, seed=0):
        self._model, self._seed = model, seed
        self.about = _ABOUT.format(_size(model))
        self._v = in_blocks(lambda x: _visible(model, x), images[:_FITTED], "float32")
        self._base = model.layer.independent(self._v)[0].reshape(-1).astype("float32")

    def log_weights(self, images):
        """-F of the features of images, (N,), nats."""
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
