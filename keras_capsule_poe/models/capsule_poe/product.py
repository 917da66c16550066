"""The whole model: autoencoder, primary capsules, expert capsules and decoder in one."""

import keras
from keras import ops

from keras_capsule_poe.functions.norms import length
from keras_capsule_poe.functions.squash import squash
from keras_capsule_poe.functions.units import free_energy
from keras_capsule_poe.functions.winners import winner_alone
from keras_capsule_poe.layers.gaussian_mixtures import GaussianMixtures
from keras_capsule_poe.models.autoencoded import AutoencodedModel, build_once
from keras_capsule_poe.models.capsule_poe.density import (
    BASES,
    FITTED,
    ROUTINGS,
    CapsuleDensity,
    visible,
)
from keras_capsule_poe.models.capsule_poe.draws import CapsuleDraws
from keras_capsule_poe.models.generative import GenerativeModel, Mode
from keras_capsule_poe.models.likelihood import LikelihoodModel
from keras_capsule_poe.models.randomness import StatelessSeed

# Noise has little in common with an expert's few directions: as long as features it turns none on,
# and the chain dies out at the mean image.
LONGER = 8


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ProductOfExpertCapsules(
    CapsuleDraws, LikelihoodModel, AutoencodedModel, GenerativeModel, keras.Model
):
    """Images to expert capsules and back, and images from single capsules.

    Args:
        autoencoder: `ConvAutoencoder`, trained.
        primary: `PrimaryCapsules`, adapted.
        encoder: `CapsuleEncoder`, trained.
        decoder: `CapsuleDecoder`, trained.
        visited: `GaussianMixtures` of each capsule's codes in training, one group a capsule; or
            None for one Gaussian each. Its weights are set after training.
        joint: `GaussianMixtures` of whole codes, one group of dimension J E; or None, likewise.
        **kwargs: Base model arguments.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in [0, 1].

    Returns:
        Tensor (B, H, W, C), the images decoded from their whole code.

    Examples:

    >>> import keras_capsule_poe as kcp
    >>> autoencoder = kcp.ConvAutoencoder(filters=2)
    >>> autoencoder.build((None, 20, 20, 1))
    >>> primary = kcp.PrimaryCapsules(4)
    >>> primary.build((None, *autoencoder.feature_shape))
    >>> encoder = kcp.CapsuleEncoder(kcp.CapsulePoE(3, 2))
    >>> decoder = kcp.CapsuleDecoder(kcp.CapsulePoE(primary.capsules, 4))
    >>> model = ProductOfExpertCapsules(autoencoder, primary, encoder, decoder)
    >>> model.build((None, 20, 20, 1))
    >>> tuple(model.sample(5, seed=7)["images"].shape)
    (5, 20, 20, 1)

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643)
    """

    PARTS = ("autoencoder", "primary", "encoder", "decoder", "visited", "joint")
    TITLE = "Product of expert capsules (arXiv 1907.11643)"
    CHAINS = ("meanfield",)
    CEILINGS = ("autoencoder", "whole_code", "routing_off")
    DENSITIES = {"base": BASES, "routing": ROUTINGS}
    ENDPOINTS = {
        **GenerativeModel.ENDPOINTS,
        "sample_capsule": ("capsule", "n", "seed"),
        "sample_joint": ("n", "seed"),
    }

    def __init__(self, autoencoder, primary, encoder, decoder, visited=None, joint=None, **kwargs):
        super().__init__(**kwargs)
        self.set_parts(autoencoder, primary, encoder, decoder, visited, joint)
        experts = self.encoder.experts
        self.capsules, self.dim = experts.capsules, experts.dim
        whole = self.capsules * self.dim
        if visited is None:
            self.visited = GaussianMixtures(self.capsules, 1, self.dim, name="visited")
        if joint is None:
            self.joint = GaussianMixtures(1, 1, whole, rank=1, name="joint")

    @property
    def poles(self):
        """Bias vectors of affine experts (J, E), zero where a frame has turned codes; or None."""
        bias, frames = self.encoder.experts.bias, self.encoder.frames
        return None if bias is None else frames.is_identity()[:, None] * ops.cast(bias, "float32")

    @property
    def MODES(self):
        """Each image from one capsule, or from all of them together."""
        plain = "Its directions come from the paper's plain Gaussian."
        chart = (
            "Its directions come from a plain Gaussian; without a frame, in the chart of the "
            "half-sphere around the capsule's bias."
        )
        is_affine = self.encoder.experts.bias is not None
        return {
            "single": Mode(
                ("complete", "restricted", "visited"),
                self.capsules,
                "Each column shows one capsule, all others zero.",
                {
                    "complete": chart if is_affine else plain,
                    "restricted": "Its directions come from the half of the sphere that "
                    "training visited.",
                    "visited": "Its directions come from a mixture fitted to those that training "
                    "visited.",
                },
            ),
            "joint": Mode(note="Whole codes, from the mixture fitted to those of training."),
        }

    @property
    def own_parameters(self):
        """How many parameters model the features."""
        return self.encoder.count_params() + self.decoder.count_params()

    def build(self, input_shape):
        build_once(self.autoencoder, input_shape)
        build_once(self.primary, (None, *self.autoencoder.feature_shape))
        build_once(self.encoder, (None, self.primary.capsules, self.primary.dim))
        build_once(self.decoder, (None, self.capsules, self.dim))
        build_once(self.visited, None)
        build_once(self.joint, None)
        self.mean_direction = self.add_weight(
            shape=(self.capsules, self.dim),
            initializer="zeros",
            trainable=False,
            name="mean_direction",
        )
        self.built = True

    def code(self, images, coefficients=None):
        """Everything that one routing of images gives.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].
            coefficients: `"uniform"`: all routing coefficients alike; `None`: routed.

        Returns:
            dict: `capsules` (B, J, E), squashed, in their frames; `probabilities` (B, J), their
            lengths; `free_energy` (B,), nats; `experts` (B, J, E), squashed outside their frames,
            where what is near is alike whichever expert wins.
        """
        return self._code(self.to_visible(images), coefficients)

    def featured_code(self, images):
        features = self.to_features(images)
        return {**self._code(self.primary(features)), "features": features}

    def _code(self, x, coefficients=None):
        z = self.encoder.experts.route(x, coefficients).z
        capsules = self.encoder.frames(z)
        return {
            "capsules": capsules,
            "probabilities": length(capsules),
            "free_energy": free_energy(z),
            "experts": squash(z),
        }

    def visible_free_energy(self, x):
        """Free energy F (B,), nats, of squashed primary capsules (B, I, D)."""
        return self.encoder.experts.free_energy(x)

    def decode_visible(self, capsules):
        """Squashed primary capsules (B, I, D) of squashed expert capsules (B, J, E)."""
        return self.decoder(capsules)

    def render(self, capsules):
        """Squashed expert capsules (B, J, E) as `images` and `primary_capsules` (B, I, D)."""
        primary = self.decode_visible(capsules)
        return {"images": self.from_visible(primary), "primary_capsules": primary}

    def to_visible(self, images):
        """Images (B, H, W, C), pixels in [0, 1], to squashed primary capsules (B, I, D)."""
        return self.primary(self.to_features(images))

    def from_visible(self, x):
        """Squashed primary capsules (B, I, D) to images (B, H, W, C), pixels in [0, 1]."""
        return self.from_features(self.primary.to_features(x))

    def visible_noise(self, n, seed):
        """Primary capsules (N, I, D) of noise, eight times as long as features, then squashed."""
        primary = self.primary
        shape = (n, primary.capsules, primary.dim)
        # |z_i|^2 sums over D dimensions.
        deviation = LONGER * primary.target_length / primary.dim**0.5
        return squash(keras.random.normal(shape, stddev=deviation, seed=StatelessSeed(seed)))

    def chain_step(self, x, seed=None):
        """Primary capsules (B, I, D) after one up-down pass of the experts' squashed means.

        Nothing is drawn at random, and `seed` is not used: a chain depends on its start alone
        and settles near what the model finds likely.
        """
        return self.encoder.experts.mean_field_step(x)

    def reconstructions(self, images):
        """Images decoded from their features, from one step of the chain, and from codes.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            dict of pairs (decoded, original): of images `autoencoder`, `divergence_step`,
            `whole_code`, `one_capsule` (the most probable one alone) and `routing_off` (uniform
            coefficients, the ablation); `primary_capsules` (B, I, D), of the whole code.
        """
        features = self.to_features(images)
        x = self.primary(features)
        capsules = self._code(x)["capsules"]
        whole = self.render(capsules)
        unrouted = self._code(x, "uniform")["capsules"]
        return {
            "autoencoder": (self.from_features(features), images),
            "divergence_step": (self.from_visible(self.chain_step(x)), images),
            "whole_code": (whole["images"], images),
            "one_capsule": (self.render(winner_alone(capsules))["images"], images),
            "routing_off": (self.render(unrouted)["images"], images),
            "primary_capsules": (whole["primary_capsules"], x),
        }

    def density(self, images, seed=0, base=None, routing="fixed"):
        """The density of primary capsules over a base measure, see `CapsuleDensity`.

        Args:
            images: Array (N, H, W, C), uint8, training images; at most 6,000 are looked at.
            seed: Of no use here: nothing is drawn of images.
            base: str, P_0, which must be named.
            routing: str, the coefficients.

        Raises:
            BadUse: If no base is named, or there is none such.
        """
        self.check_named(base=base, routing=routing)
        return CapsuleDensity(self, visible(self, images[:FITTED]), base, routing)
