"""Sampling of codes of a product of expert capsules."""

from numbers import Integral
from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.core.numerics import direction, length
from keras_capsule_poe.core.randomness import StatelessSeed, capsule_order
from keras_capsule_poe.core.routing import winner_alone
from keras_capsule_poe.core.squash import squash
from keras_capsule_poe.core.units import free_energy
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.models.base.autoencoder import AutoencodedModel, build_once
from keras_capsule_poe.models.base.protocols import GenerativeModel, LikelihoodModel, Mode
from keras_capsule_poe.models.capsule_poe.density import (
    BASES,
    FITTED,
    ROUTINGS,
    CapsuleDensity,
    visible,
)
from keras_capsule_poe.models.capsule_poe.layers import GaussianMixtures


class CapsuleDraws:
    """Mixin that samples codes with one active capsule, or whole codes."""

    # Biases (J, E) of biased experts, or None. A zero row means no bias.
    poles = None

    def sample_capsule(self, capsule, n, seed, domain=None):
        """Sample images from the capsule with index `capsule`; otherwise like `sample`."""
        if isinstance(capsule, Integral) and not 0 <= capsule < self.capsules:
            raise BadUse(
                f"`capsule` must be an index of {self.capsules} capsules, from 0. "
                f"Received: capsule={capsule}"
            )
        _, domain = self.resolve_mode("single", domain)
        codes = self._draw_single(ops.full((n,), capsule, dtype="int32"), n, seed, domain)
        return {**self.decode(codes), "capsules": codes}

    def sample_joint(self, n, seed):
        """Sample images in mode `"joint"`, with all capsules active."""
        return self.sample(n, seed, "joint")

    def draw(self, n, seed, mode=None, domain=None):
        """Sample codes; mode `"single"` uses each capsule once per block of J, in random order.

        Args:
            n, seed: Integers or scalar integer tensors: the number of codes, and the seed.
            mode: String, `"single"` (default) or `"joint"`, see `single_code` and `joint_code`.
            domain: String, for mode `"single"`, see `single_code`.

        Returns:
            Dict with `capsules` (N, J, E), and `capsule` (N,) in mode `"single"`.

        Raises:
            BadUse: If the mode or the domain is unknown.
        """
        mode, domain = self.resolve_mode(mode, domain)
        if mode == "joint":
            noise = keras.random.normal((n, self.joint.rank), seed=StatelessSeed(seed))
            return {"capsules": self.joint_code(noise, _choice(n, seed))}
        capsule = capsule_order(n, self.capsules, StatelessSeed(seed, 1))
        return {"capsules": self._draw_single(capsule, n, seed, domain), "capsule": capsule}

    def _draw_single(self, capsule, n, seed, domain):
        noise = keras.random.normal((n, self.dim), seed=StatelessSeed(seed))
        return self.single_code(noise, _choice(n, seed), capsule, domain)

    def single_code(self, noise, choice, capsule, domain=None):
        """Return codes (N, J, E), squashed, in which all capsules but one are zero.

        Args:
            noise: Tensor (N, E), standard Gaussian.
            choice: Tensor (N,), uniform in `[0, 1)`, selects a mixture component for `"posterior"`.
            capsule: Integer tensor (N,), the active capsules.
            domain: String. `"prior"` is the prior: the squashed noise (Figure 2, left), or for
                a biased expert directions in the half-sphere around its bias. `"half_space"`
                reflects the squashed noise into the half-space of the mean training direction
                (Figure 2, right). `"posterior"` takes directions from the Gaussian mixture of the
                training codes that the capsule won.
        """
        _, domain = self.resolve_mode("single", domain)
        x = squash(noise)
        if domain == "posterior":
            x = length(x, keepdims=True) * direction(self.visited(noise, choice, capsule))
        elif domain == "half_space":
            side = ops.sum(x * ops.take(self.mean_direction, capsule, axis=0), axis=-1)
            x = ops.where((side < 0)[:, None], -x, x)
        elif self.poles is not None:
            x = length(x, keepdims=True) * from_chart(noise, ops.take(self.poles, capsule, axis=0))
        chosen = ops.one_hot(capsule, self.capsules, dtype=x.dtype)
        return chosen[:, :, None] * x[:, None, :]

    def joint_code(self, noise, choice):
        """Return whole codes (N, J, E) from the mixture fitted to the training codes.

        Each code is scaled so that its longest capsule has the length of a squashed Gaussian.

        Args:
            noise: Tensor (N, R), standard Gaussian, with R the rank of `joint`.
            choice: Tensor (N,), uniform in `[0, 1)`.
        """
        drawn = self.joint(noise, choice, ops.zeros(ops.shape(choice), dtype="int32"))
        codes = ops.reshape(drawn, (-1, self.capsules, self.dim))
        longest = ops.max(length(codes), axis=-1)
        wanted = length(squash(noise[:, : self.dim]))
        return codes * (wanted / ops.maximum(longest, 1e-30))[:, None, None]


def from_chart(noise, poles):
    """Return unit vectors (p + r)/|p + r|: p the pole's direction, r the noise across it."""
    pole = direction(poles)
    across = noise - pole * ops.sum(noise * pole, axis=-1, keepdims=True)
    return direction(pole + across)


def _choice(n, seed):
    return keras.random.uniform((n,), seed=StatelessSeed(seed, 2))


# Noise rarely aligns with an expert. At the length of features it activates none, and the chain
# collapses to the mean image.
LONGER = 8


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ProductOfExpertCapsules(
    CapsuleDraws, LikelihoodModel, AutoencodedModel, GenerativeModel, keras.Model
):
    """Image model of an autoencoder, primary capsules, a capsule encoder and a capsule decoder.

    Args:
        autoencoder: Trained `ConvAutoencoder`.
        primary: Adapted `PrimaryCapsules`.
        encoder: Trained `CapsuleEncoder`.
        decoder: Trained `CapsuleDecoder`.
        visited: `GaussianMixtures` of the training codes, one group per capsule. None means one
            Gaussian per capsule. The weights are set after training.
        joint: `GaussianMixtures` of whole codes, one group of dimension J E. None means one
            Gaussian of rank one.
        **kwargs: `keras.Model` arguments.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in `[0, 1]`.

    Returns:
        Tensor (B, H, W, C), the images decoded from their codes.

    Example:

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

    def __init__(
        self,
        autoencoder: Serializable,
        primary: Serializable,
        encoder: Serializable,
        decoder: Serializable,
        visited: Serializable | None = None,
        joint: Serializable | None = None,
        **kwargs: Any,
    ) -> None:
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
        """Expert biases (J, E), zero for experts with whitening, or None without bias."""
        bias, frames = self.encoder.experts.bias, self.encoder.frames
        return None if bias is None else frames.is_identity()[:, None] * ops.cast(bias, "float32")

    @property
    def MODES(self):
        """Modes `"single"`, one active capsule per image, and `"joint"`."""
        plain = "Its directions come from the paper's plain Gaussian."
        chart = (
            "Its directions come from a plain Gaussian; without a frame, in the chart of the "
            "half-sphere around the capsule's bias."
        )
        is_affine = self.encoder.experts.bias is not None
        return {
            "single": Mode(
                ("prior", "half_space", "posterior"),
                self.capsules,
                "Each column shows one capsule, all others zero.",
                {
                    "prior": chart if is_affine else plain,
                    "half_space": "Its directions come from the half of the sphere that "
                    "training visited.",
                    "posterior": "Its directions come from a mixture fitted to those that training "
                    "visited.",
                },
            ),
            "joint": Mode(note="Whole codes, from the mixture fitted to those of training."),
        }

    @property
    def own_parameters(self):
        """Number of parameters of encoder and decoder."""
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
        """Encode images (B, H, W, C); `coefficients="uniform"` turns routing off.

        Returns:
            Dict with squashed, whitened `capsules` (B, J, E), their lengths `probabilities` (B,
            J), and `free_energy` (B,) in nats. `experts` (B, J, E) are squashed but not whitened,
            so that their distances are comparable across experts.
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
        """Return the free energy (B,) of squashed primary capsules (B, I, D), in nats."""
        return self.encoder.experts.free_energy(x)

    def decode_visible(self, capsules):
        """Decode expert capsules (B, J, E) to primary capsules (B, I, D), both squashed."""
        return self.decoder(capsules)

    def render(self, capsules):
        """Decode capsules (B, J, E) to a dict with `images` and `primary_capsules` (B, I, D)."""
        primary = self.decode_visible(capsules)
        return {"images": self.from_visible(primary), "primary_capsules": primary}

    def to_visible(self, images):
        """Encode images (B, H, W, C) to squashed primary capsules (B, I, D)."""
        return self.primary(self.to_features(images))

    def from_visible(self, x):
        """Decode squashed primary capsules (B, I, D) to images (B, H, W, C)."""
        return self.from_features(self.primary.to_features(x))

    def visible_noise(self, n, seed):
        """Sample squashed Gaussian noise (N, I, D), eight times as long as features."""
        primary = self.primary
        shape = (n, primary.capsules, primary.dim)
        deviation = LONGER * primary.target_length / primary.dim**0.5
        return squash(keras.random.normal(shape, stddev=deviation, seed=StatelessSeed(seed)))

    def chain_step(self, x, seed=None):
        """Return primary capsules (B, I, D) after a mean-field step; `seed` is not used."""
        return self.encoder.experts.mean_field_step(x)

    def reconstructions(self, images):
        """Reconstruct images from each level of the model.

        Returns:
            Dict of pairs (decoded, original). The images are decoded from features
            (`autoencoder`), a mean-field step (`divergence_step`), the code (`whole_code`), its
            longest capsule (`one_capsule`), and uniform routing (`routing_off`, an ablation).
            `primary_capsules` (B, I, D) are decoded from the code.
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
        """Return the density of the primary capsules relative to a reference distribution P_0.

        Args:
            images: Array (N, H, W, C), uint8, training images. The first 6,000 are used.
            seed: Not used.
            base: String, P_0: `"ball"`, uniform on |x_i| < 1; `"isotropic"`, noise as long as the
                data; or `"gaussian"`, with the second moments of the data.
            routing: String, the coupling coefficients: `"fixed"`, averaged over the images, or
                `"routed"`, per image.

        Raises:
            BadUse: If `base` or `routing` is missing or unknown.
        """
        self.check_named(base=base, routing=routing)
        return CapsuleDensity(self, visible(self, images[:FITTED]), base, routing)
