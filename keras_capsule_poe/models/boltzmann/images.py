"""An RBM of images as a generative model, with its density and bounds on log Z."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.core.annealing import Bracket, annealing_schedule
from keras_capsule_poe.core.harmonium import gibbs_chain, gibbs_step
from keras_capsule_poe.core.numerics import compiled, whole_number
from keras_capsule_poe.core.partition import (
    annealed_partition,
    draw_enumerated,
    enumerated_log_partition,
    reverse_annealed_partition,
)
from keras_capsule_poe.core.randomness import StatelessSeed, split
from keras_capsule_poe.core.units import BinaryUnits
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.models.base.protocols import (
    UNSET,
    Density,
    GenerativeModel,
    LikelihoodModel,
    Mode,
    build_once,
)
from keras_capsule_poe.models.base.staged import StagedModel
from keras_capsule_poe.models.boltzmann.config import FAMILY
from keras_capsule_poe.models.boltzmann.layers import RestrictedBoltzmannMachine, binarization

# Schedule of Salakhutdinov & Murray (2008): fractions of the steps up to each beta.
_PIECES = ((0.5, 500 / 14_500), (0.9, 4000 / 14_500))
# Gibbs steps from the persistent chains to the start of the reverse annealing.
_MIXED = 1000
# Rows per call.
BLOCK = 2048
# Number of images for the means of the independent neurons.
_FITTED = 10_000
_VALUES = {
    "bernoulli": "binary visible neurons",
    "unit": "visible neurons in [0, 1], a density",
    "gaussian": "features, a density",
}


def free_energies(function, rows):
    """Return a free energy (N,) of rows or images as float64."""
    return map_batches(compiled(function), rows, BLOCK).astype("float64")


class HarmoniumDensity(Density):
    """p(v) of an `ImageBoltzmannMachine`; AIS starts at independent neurons fitted to images."""

    TEMPERATURES, CHAINS = 14_500, 100

    def __init__(self, model, images, seed=0):
        self._model, self._seed = model, seed
        how = {"stochastic": ", each drawn with its pixel as probability", None: ""}
        how = how.get(model.binarize, ", one where a pixel is above a half")
        neurons = model.chain_states.shape[-1]
        self.about = f"{neurons} {_VALUES[model.machine.visible]}{how}"
        self._base, _ = model.machine.independent(self._visible(images[:_FITTED]))

    def log_weights(self, images):
        """Return -F of the visible neurons of images (N,) in nats."""
        return -free_energies(self._model.machine.free_energy, self._visible(images))

    def exact(self):
        """Return log Z by enumeration, or None if no layer is small enough."""
        try:
            return enumerated_log_partition(self._harmonium())
        except ValueError:
            return None

    def bracket(self, temperatures, chains, seed):
        """Return the `Bracket` of log Z from forward and reverse annealing."""
        machine = self._harmonium()
        betas = schedule(temperatures)
        seeds = [int(part) for part in np.ravel(split(seed, 2))]
        forward = annealed_partition(machine, betas, chains, self._base, seeds[0])
        ends = self._draws(machine, chains, seeds[1])
        back = reverse_annealed_partition(machine, ends, betas, self._base, seeds[2])
        return Bracket(*forward[:2], *back[:2])

    def _draws(self, machine, chains, seed):
        try:
            return draw_enumerated(machine, chains, seed)
        except ValueError:
            # No exact draws: the upper bound is only as good as these chains.
            x = self._chain_states(chains)
        return compiled(lambda x: gibbs_chain(machine, x, _MIXED, seed)[0])(x)

    def _harmonium(self):
        return self._model.machine.harmonium()

    def _chain_states(self, chains):
        """Return the initial states of the reverse annealing's burn-in."""
        rows = np.arange(chains) % self._model.persistent_chains
        return self._model.machine.sent(ops.take(self._model.chain_states, rows, axis=0))

    def _visible(self, images):
        """Return visible neurons (N, D) of images as an array."""
        v = map_batches(compiled(self._model.to_visible), images, BLOCK)
        if self._model.binarize != "stochastic":
            return v
        drawn = np.random.default_rng(self._seed).uniform(size=v.shape)
        return (drawn < v).astype("float32")


def schedule(temperatures):
    """Return `temperatures` + 1 betas from zero to one, denser towards one."""
    pieces = [(beta, int(share * temperatures)) for beta, share in _PIECES]
    pieces = [(beta, number) for beta, number in pieces if number]
    rest = temperatures - sum(number for _, number in pieces)
    return annealing_schedule(*pieces, (1.0, rest))


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class ImageBoltzmannMachine(StagedModel, LikelihoodModel, GenerativeModel, keras.Model):
    """Restricted Boltzmann machine of images, over pixels or autoencoder features.

    `fit(images)` trains it by contrastive divergence. Given a trained machine, the constructor
    wraps it instead.

    A code is one capsule (B, 1, E): the probabilities `p(h = 1 | v)`, or drawn neurons. Gibbs
    sampling runs in float64. Rounding then cannot flip a neuron, and equal seeds give equal
    images on every machine.

    Args:
        machine: `RestrictedBoltzmannMachine`, trained, or its config.
        image_shape: (H, W, C).
        binarize: `"stochastic"` uses pixels as probabilities of visible neurons. Codes use these
            probabilities and likelihoods use draws. `"threshold"` sets pixels above 0.5 to one.
            `None` uses pixels or features as they are.
        autoencoder: `ConvAutoencoder`, trained, whose features are the visible neurons.
            `None`: pixels are the visible neurons.
        persistent_chains: int, number of stored visible states that start sampling.
        burn_in: int, Gibbs steps from a stored state to a sample.
        recipe: String, a named set of settings: `"pixels"` (the default) or another of
            `families.get("rbm").recipes`.
        **settings: Settings of the training by name, such as `hidden=200` or `seed=1`; also
            `name` and `dtype` of `keras.Model`.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in `[0, 1]`.

    Returns:
        Tensor (B, H, W, C), mean-field reconstructions.

    Raises:
        ValueError: If an argument has a wrong value.

    Example:

    >>> machine = RestrictedBoltzmannMachine(3)
    >>> model = ImageBoltzmannMachine(machine, (4, 4, 1), persistent_chains=2, burn_in=5)
    >>> model.build()
    >>> model.sample(6, seed=0)
    Samples(images: (6, 4, 4, 1), capsules: (6, 1, 3))

    Reference:

    - [Hinton, 2012](https://doi.org/10.1007/978-3-642-35289-8_32), practical guide
    """

    PARTS = ("machine", "autoencoder")
    NEEDED = ("machine",)
    FAMILY = FAMILY
    TITLE = "Restricted Boltzmann machine"
    CHAINS = ("gibbs", "meanfield")
    CODES = "cube"
    modes = {"joint": Mode(note="Means of pixels given hidden neurons, drawn by Gibbs sampling.")}
    ENDPOINTS = {**GenerativeModel.ENDPOINTS, "gibbs": ("images", "steps", "seed")}

    def __init__(
        self,
        machine: Serializable | None = None,
        image_shape: tuple[int, int, int] | None = None,
        binarize: Any = UNSET,
        autoencoder: Serializable | dict | None = None,
        persistent_chains: Any = UNSET,
        burn_in: Any = UNSET,
        *,
        recipe: str | None = None,
        **settings: Any,
    ) -> None:
        given = {"binarize": binarize, "burn_in": burn_in}
        if machine is None:
            # They are settings of the training, too.
            settings |= {name: value for name, value in given.items() if value is not UNSET}
            if persistent_chains is not UNSET:
                settings["chains"] = persistent_chains
        parts = {"machine": machine, "autoencoder": autoencoder}
        if not self.start(parts, recipe, settings):
            return
        if image_shape is None:
            raise TypeError("`image_shape` must be (H, W, C) if a machine is given.")
        binarize = "threshold" if binarize is UNSET else binarize
        burn_in = 100 if burn_in is UNSET else burn_in
        persistent_chains = 100 if persistent_chains is UNSET else persistent_chains
        if not isinstance(self.machine, RestrictedBoltzmannMachine):
            raise ValueError(
                f"`machine` must be a RestrictedBoltzmannMachine. Received: machine={machine!r}"
            )
        self.image_shape = tuple(image_shape)
        self.binarize = binarization(binarize, self.machine)
        self.capsules, self.dim = 1, self.machine.units
        self.persistent_chains = whole_number("persistent_chains", persistent_chains)
        self.burn_in = whole_number("burn_in", burn_in)

    @property
    def upper_bounds(self):
        return ("whole_code",) if self.autoencoder is None else ("autoencoder", "whole_code")

    @property
    def own_parameters(self):
        return self.machine.count_params()

    def neuron_values(self) -> Any:
        """Return the values (1, E) in a code of neurons that are off, and of those that are on."""
        return np.zeros((1, self.dim), "float32"), np.ones((1, self.dim), "float32")

    def build_parts(self, input_shape):
        if self.autoencoder is not None:
            build_once(self.autoencoder, (None, *self.image_shape))
        neurons = math.prod(self._feature_shape)
        build_once(self.machine, (None, neurons))
        shape = (self.persistent_chains, neurons)
        self.chain_states = self.add_weight(shape, "zeros", trainable=False, name="particles")

    def code(self, images, coefficients=None):
        """Return the hidden code of images (B, H, W, C); `coefficients` is ignored.

        Returns:
            dict: `capsules` (B, 1, E), `p(h = 1 | v)`; `probabilities` (B, 1), their mean;
            `free_energy` (B,), nats.
        """
        machine, x = self.machine.harmonium(), self.machine.sent(self.to_visible(images))
        z = machine.fields(x)
        p = BinaryUnits().mean(z)
        return {
            "capsules": p[:, None],
            "probabilities": ops.mean(p, axis=-1, keepdims=True),
            "free_energy": self.machine.free_energy_of(machine, x, z),
        }

    def render(self, capsules):
        """Return a dict with the mean `images` (B, H, W, C) given hidden neurons (B, 1, E)."""
        return {"images": self.from_visible(self.machine.decode(capsules[:, 0]))}

    def draw(self, n, seed, mode=None, domain=None):
        """Draw hidden neurons by Gibbs sampling from the stored states, see `GenerativeModel.draw`.

        Returns:
            dict: `capsules` (n, 1, E), zeros and ones.
        """
        self.resolve_mode(mode, domain)
        chosen = keras.random.randint((n,), 0, self.persistent_chains, seed=StatelessSeed(seed))
        x = self.machine.sent(ops.take(self.chain_states, chosen, axis=0))
        _, y = gibbs_chain(self._exact(), x, self.burn_in, StatelessSeed(seed, 1))
        offset = self.machine.hidden_offset
        y = y if offset is None else y + ops.cast(offset, y.dtype)
        # Adding the offset back may leave rounding errors.
        return {"capsules": ops.cast(ops.round(y), "float32")[:, None]}

    def to_visible(self, images):
        """Return visible neurons (B, D) of images, probabilities if they are stochastic."""
        v = ops.cast(self.to_features(images), "float32")
        v = ops.reshape(v, (-1, math.prod(self._feature_shape)))
        return ops.cast(v > 0.5, v.dtype) if self.binarize == "threshold" else v

    def from_visible(self, x):
        """Return images (B, H, W, C) for visible neurons (B, D)."""
        return self.from_features(ops.reshape(x, (-1, *self._feature_shape)))

    def visible_noise(self, n, seed):
        """Return visible neurons (n, D) of the RBM without maps."""
        machine = self.machine.harmonium()
        bias = machine.visible_bias
        fields = ops.broadcast_to(bias, (n, *bias.shape))
        return self.machine.received(machine.visible.sample(fields, StatelessSeed(seed)))

    def chain_step(self, x, seed=None):
        """One step from visible neurons (B, D): Gibbs with a `seed`, else mean field."""
        if seed is None:
            return self.machine.reconstruct(x)
        x, _ = gibbs_step(self._exact(), self.machine.sent(x), seed)
        return self.machine.received(ops.cast(x, "float32"))

    def gibbs_step(self, images, seed):
        machine = self.machine.harmonium()
        x, _ = gibbs_step(machine, self.machine.sent(self.to_visible(images)), seed)
        return {"images": self.from_visible(self.machine.received(ops.cast(x, "float32")))}

    def to_features(self, images):
        """Return the autoencoder's feature maps, or the pixels without one."""
        return images if self.autoencoder is None else self.autoencoder.encode(images)

    def from_features(self, features):
        """Return images (B, H, W, C) for features, pixels clipped or decoded to `[0, 1]`."""
        if self.autoencoder is None:
            return ops.clip(features, 0, 1)
        return self.autoencoder.decode(features)

    def reconstructions(self, images):
        """Return reconstructions of images (B, H, W, C) next to their originals.

        Returns:
            dict of pairs (decoded, original): `whole_code`, images; `visible`, neurons (B, D); with
            an autoencoder also `autoencoder`, images.
        """
        v = self.to_visible(images)
        decoded = self.machine.decode(self.machine(v))
        found = {"whole_code": (self.from_visible(decoded), images), "visible": (decoded, v)}
        if self.autoencoder is None:
            return found
        return {"autoencoder": (self.from_features(self.to_features(images)), images), **found}

    def density(self, images, seed=0, **named):
        """Return the density of v, see `LikelihoodModel.density`; takes no named words."""
        self.check_named(**named)
        return HarmoniumDensity(self, images, seed)

    @property
    def _feature_shape(self):
        return self.image_shape if self.autoencoder is None else self.autoencoder.feature_shape

    def _exact(self):
        return self.machine.harmonium("float64")

    def get_config(self):
        if not self.is_fitted:
            return super().get_config()
        return {
            **super().get_config(),
            "image_shape": self.image_shape,
            "binarize": self.binarize,
            "persistent_chains": self.persistent_chains,
            "burn_in": self.burn_in,
        }
