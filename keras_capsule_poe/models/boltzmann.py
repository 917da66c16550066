"""A restricted Boltzmann machine of images: one capsule, whose dimensions are hidden neurons."""

import math

import keras
from keras import ops

from keras_capsule_poe.functions.checks import one_of, whole_number
from keras_capsule_poe.functions.harmonium import gibbs_chain, gibbs_step
from keras_capsule_poe.functions.units import BinaryUnits
from keras_capsule_poe.layers.boltzmann import RestrictedBoltzmannMachine
from keras_capsule_poe.models.generative import GenerativeModel, Mode
from keras_capsule_poe.models.harmonium_density import HarmoniumDensity
from keras_capsule_poe.models.likelihood import LikelihoodModel
from keras_capsule_poe.models.randomness import StatelessSeed

BINARIZE = ("stochastic", "threshold")


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ImageBoltzmannMachine(LikelihoodModel, GenerativeModel, keras.Model):
    """Images of a trained machine over pixels, or over the features of an autoencoder.

    A code is one capsule, (B, 1, E): p(h = 1 | v) of the hidden neurons, or neurons drawn. What
    is drawn is computed in 64 bits, so that a number which two programs round differently turns
    no neuron over, and the same seed gives the same images everywhere.

    Args:
        machine: `RestrictedBoltzmannMachine`, trained, or its config.
        image_shape: (H, W, C).
        binarize: `"stochastic"`, pixels are probabilities of visible neurons: codes are of the
            pixels themselves, likelihoods of draws; `"threshold"`, a neuron is one where a pixel
            is above a half; `None`, neurons are pixels, or features.
        autoencoder: `ConvAutoencoder`, trained, whose features are the visible neurons; or None.
        particles: int, how many visible states of the model are kept, from which samples start.
        burn_in: int, Gibbs steps that samples are away from them.
        **kwargs: Base model arguments.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in [0, 1].

    Returns:
        Tensor (B, H, W, C), mean-field reconstructions.

    Raises:
        ValueError: If an argument is not as above.

    Examples:

    >>> machine = RestrictedBoltzmannMachine(3)
    >>> model = ImageBoltzmannMachine(machine, (4, 4, 1), particles=2, burn_in=5)
    >>> model.build()
    >>> model.sample(6, seed=0)["images"].shape
    TensorShape([6, 4, 4, 1])

    Reference:

    - [Smolensky, 1986](https://stanford.edu/~jlmcc/papers/PDP/Volume%201/Chap6_PDP86.pdf)
    - [Hinton, 2012](https://doi.org/10.1007/978-3-642-35289-8_32), practical guide
    """

    TITLE = "Restricted Boltzmann machine"
    CHAINS = ("gibbs", "meanfield")
    CODES = "cube"
    MODES = {"joint": Mode(note="Means of pixels given hidden neurons, drawn by Gibbs sampling.")}
    ENDPOINTS = {**GenerativeModel.ENDPOINTS, "gibbs": ("images", "steps", "seed")}

    def __init__(
        self,
        machine,
        image_shape,
        binarize="threshold",
        autoencoder=None,
        particles=100,
        burn_in=100,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.machine, self.autoencoder = (
            keras.saving.deserialize_keras_object(part) if isinstance(part, dict) else part
            for part in (machine, autoencoder)
        )
        if not isinstance(self.machine, RestrictedBoltzmannMachine):
            raise ValueError(
                f"`machine` must be a RestrictedBoltzmannMachine. Received: machine={machine!r}"
            )
        if binarize is not None:
            one_of("binarize", binarize, BINARIZE)
            if self.machine.visible != "bernoulli":
                raise ValueError(
                    f"`binarize` must be None where neurons are {self.machine.visible!r}. "
                    f"Received: binarize={binarize!r}"
                )
        self.image_shape, self.binarize = tuple(image_shape), binarize
        self.capsules, self.dim = 1, self.machine.units
        self.kept = whole_number("particles", particles)
        self.burn_in = whole_number("burn_in", burn_in)

    @property
    def CEILINGS(self):
        """The mean-field reconstruction; over features those decoded, too."""
        return ("whole_code",) if self.autoencoder is None else ("autoencoder", "whole_code")

    @property
    def own_parameters(self):
        """How many parameters model the pixels or the features."""
        return self.machine.count_params()

    def build(self, input_shape=None):
        if self.autoencoder is not None and not self.autoencoder.built:
            self.autoencoder.build((None, *self.image_shape))
        neurons = math.prod(self._feature_shape)
        if not self.machine.built:
            self.machine.build((None, neurons))
        self.particles = self.add_weight(
            (self.kept, neurons), "zeros", trainable=False, name="particles"
        )
        self.built = True

    def code(self, images, coefficients=None):
        """Hidden neurons of images.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].
            coefficients: Of no use here: nothing is routed.

        Returns:
            dict: `capsules` (B, 1, E), p(h = 1 | v); `probabilities` (B, 1), their mean;
            `free_energy` (B,), nats.
        """
        x = self.machine.sent(self.to_visible(images))
        z = self.machine.harmonium().fields(x)
        p = BinaryUnits().mean(z)
        return {
            "capsules": p[:, None],
            "probabilities": ops.mean(p, axis=-1, keepdims=True),
            "free_energy": self.machine.free_energy_of(x, z),
        }

    def render(self, capsules):
        """The mean of `images` (B, H, W, C) given hidden neurons (B, 1, E), of any values."""
        return {"images": self.from_visible(self.machine.decode(capsules[:, 0]))}

    def draw(self, n, seed, mode=None, domain=None):
        """Hidden neurons drawn by Gibbs sampling, each chain from one of the particles.

        Args:
            n, seed, mode, domain: See `GenerativeModel.draw`.

        Returns:
            dict: `capsules` (n, 1, E), zeros and ones.

        Raises:
            BadUse: If the mode or the domain is unknown.
        """
        self.resolve_mode(mode, domain)
        chosen = keras.random.randint((n,), 0, self.kept, seed=StatelessSeed(seed))
        x = self.machine.sent(ops.take(self.particles, chosen, axis=0))
        _, y = gibbs_chain(self._exact(), x, self.burn_in, StatelessSeed(seed, 1))
        offset = self.machine.hidden_offset
        y = y if offset is None else y + ops.cast(offset, y.dtype)
        # Zeros and ones, whatever the centre has left of them.
        return {"capsules": ops.cast(ops.round(y), "float32")[:, None]}

    def to_visible(self, images):
        """Visible neurons (B, D) of images (B, H, W, C); probabilities where they are drawn."""
        v = ops.cast(self.to_features(images), "float32")
        v = ops.reshape(v, (-1, math.prod(self._feature_shape)))
        return ops.cast(v > 0.5, v.dtype) if self.binarize == "threshold" else v

    def from_visible(self, x):
        """Images (B, H, W, C), pixels in [0, 1], of visible neurons (B, D)."""
        return self.from_features(ops.reshape(x, (-1, *self._feature_shape)))

    def visible_noise(self, n, seed):
        """Visible neurons (n, D) of the machine without maps."""
        machine = self.machine.harmonium()
        bias = machine.visible_bias
        fields = ops.broadcast_to(bias, (n, *bias.shape))
        return self.machine.received(machine.visible.sample(fields, StatelessSeed(seed)))

    def chain_step(self, x, seed=None):
        """Visible neurons (B, D) after one step: drawn with a `seed`, else their mean field."""
        if seed is None:
            return self.machine.reconstruct(x)
        x, _ = gibbs_step(self._exact(), self.machine.sent(x), seed)
        return self.machine.received(ops.cast(x, "float32"))

    def to_features(self, images):
        """Pixels, or the autoencoder's feature maps."""
        return images if self.autoencoder is None else self.autoencoder.encode(images)

    def from_features(self, features):
        """Images (B, H, W, C), pixels in [0, 1], of features."""
        if self.autoencoder is None:
            return ops.clip(features, 0, 1)
        return self.autoencoder.decode(features)

    def reconstructions(self, images):
        """Images decoded from hidden neurons, and what these are decoded to.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            dict of pairs (decoded, original): `whole_code`, images; `visible`, neurons (B, D);
            over features also `autoencoder`, images.
        """
        v = self.to_visible(images)
        decoded = self.machine.decode(self.machine(v))
        found = {"whole_code": (self.from_visible(decoded), images), "visible": (decoded, v)}
        if self.autoencoder is None:
            return found
        return {"autoencoder": (self.from_features(self.to_features(images)), images), **found}

    def density(self, images, seed=0, **named):
        """See `LikelihoodModel.density`; nothing is to be named."""
        self.check_named(**named)
        return HarmoniumDensity(self, images, seed)

    @property
    def _feature_shape(self):
        return self.image_shape if self.autoencoder is None else self.autoencoder.feature_shape

    def _exact(self):
        return self.machine.harmonium("float64")

    def get_config(self):
        keep = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "machine": keep(self.machine),
            "autoencoder": self.autoencoder and keep(self.autoencoder),
            "image_shape": self.image_shape,
            "binarize": self.binarize,
            "particles": self.kept,
            "burn_in": self.burn_in,
        }
