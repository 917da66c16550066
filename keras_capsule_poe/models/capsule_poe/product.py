"""Product of expert capsules: how it is trained, codes, and samples."""

import functools
import math
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.core.labels import winner_alone
from keras_capsule_poe.core.numerics import (
    StatelessSeed,
    at_least_float32,
    direction,
    length,
    squash,
)
from keras_capsule_poe.core.routing import at_places, routing_steps
from keras_capsule_poe.core.units import free_energy, squashed
from keras_capsule_poe.layers.capsules import PrimaryCapsules
from keras_capsule_poe.models.base.autoencoder import AutoencodedModel, ConvAutoencoder
from keras_capsule_poe.models.base.features import (
    build_autoencoder,
    build_primary,
    compute_features,
    load_arrays,
    load_part,
    load_primary,
    train_autoencoder,
)
from keras_capsule_poe.models.base.model import (
    TrainedModel,
    classes_verdict,
    error_verdict,
    export_images,
    flat_config,
    usage_verdict,
)
from keras_capsule_poe.models.base.protocols import (
    GenerativeModel,
    LikelihoodModel,
    Mode,
    build_once,
    whole,
)
from keras_capsule_poe.models.capsule_poe.codes import load_mixtures
from keras_capsule_poe.models.capsule_poe.curve import capsule_curve
from keras_capsule_poe.models.capsule_poe.decoder import (
    CapsuleDecoder,
    build_decoder,
    train_decoder,
)
from keras_capsule_poe.models.capsule_poe.density import BASES, ROUTINGS, CapsuleDensity, visible
from keras_capsule_poe.models.capsule_poe.encoder import (
    CapsuleEncoder,
    build_encoder,
    train_encoder,
)
from keras_capsule_poe.models.capsule_poe.layers import CapsulePoE, GaussianMixtures
from keras_capsule_poe.models.capsule_poe.settings import CapsuleSettings

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from keras_capsule_poe._keywords import (
        AutoencoderSection,
        DecoderSection,
        EncoderSection,
        PrimarySection,
        ProductOfExpertCapsulesArguments,
        ProductOfExpertCapsulesPreset,
    )

# Maximum number of images to fit P_0 and the mean routing.
FITTED = 6000
# Length of a drawn capsule at most. A length is a probability, so below one.
LONGEST = 0.98


def from_chart(noise, poles):
    """Return unit vectors (p + r)/|p + r|: p the pole's direction, r the noise across it."""
    pole = direction(poles)
    across = noise - pole * ops.sum(noise * pole, axis=-1, keepdims=True)
    return direction(pole + across)


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ProductOfExpertCapsules(
    TrainedModel, LikelihoodModel, AutoencodedModel, GenerativeModel, keras.Model
):
    """Unsupervised capsules that encode, decode and generate images.

    `fit(images)` trains three parts in turn: a convolutional autoencoder, a capsule encoder and a
    capsule decoder. Between the first two it measures the mean and the size of the features, for
    the primary capsules. The encoder learns by contrastive divergence with a hand-derived gradient,
    the decoder by a rule of the same form, both without labels. Given trained parts, the
    constructor assembles them instead.

    Args:
        autoencoder: Trained `ConvAutoencoder`.
        primary: Adapted `PrimaryCapsules`.
        encoder: Trained `CapsuleEncoder`.
        decoder: Trained `CapsuleDecoder`.
        visited: `GaussianMixtures` of the codes of training images, one group for each capsule that
            wins: whole codes and shared codes, J E + S E numbers. None: all such draws are zero.
        joint: `GaussianMixtures` of whole codes, in files of former versions. Their `visited` has
            only the E numbers of the winner.
        preset: String, a named set of settings: `"generation"` (the default), `"representation"`,
            `"detail"`, `"paper"` or `"affine"`.
        experts_class, encoder_class: Subclasses of `CapsulePoE` and `CapsuleEncoder` that `fit`
            makes, registered with Keras. They are settings of the encoder.
        **settings: Settings of the parts by name, such as `seed=1`, `capsules=30` or
            `encoder={"epochs": 5}`; see `CapsuleSettings`. Also `name` and `dtype` of
            `keras.Model`.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in `[0, 1]`.

    Returns:
        Tensor (B, H, W, C), the images decoded from their codes.

    Raises:
        ConfigError: If a setting does not exist or its value is not valid.

    Example: 300 digits train in about 20 seconds.

    >>> import keras_capsule_poe as kcp
    >>> images = kcp.data.load_images("digits", limit=100).train.images
    >>> model = ProductOfExpertCapsules(capsules=5, autoencoder={"filters": 8})
    >>> history = model.fit(images, epochs=20, verbose=0)
    >>> history["autoencoder"].history["val_relative_error"][-1] < 0.9
    True
    >>> model.sample(8, capsule=3)
    Samples(images: (8, 28, 28, 1), capsules: (8, 5, 16), index: (8,))
    >>> codes = model.encode(images)
    >>> codes.capsules.shape, codes.probabilities.shape, codes.shared.shape
    ((100, 5, 16), (100, 5), (100, 8, 16))

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643)
    """

    PARTS = ("autoencoder", "primary", "encoder", "decoder", "visited", "joint")
    NEEDED = ("autoencoder", "primary", "encoder", "decoder")
    PART_OF = {"features": "primary"}
    SETTINGS = CapsuleSettings
    WHOLE = "decoder"
    TITLE = "Product of expert capsules (arXiv 1907.11643)"
    CHAINS = ("meanfield",)
    upper_bounds = ("autoencoder", "whole_code", "routing_off")
    DENSITIES = {"base": BASES, "routing": ROUTINGS}
    ENDPOINTS = {
        **GenerativeModel.ENDPOINTS,
        "sample_capsule": ("capsule", "n", "seed"),
        "sample_joint": ("n", "seed"),
    }

    def __init__(
        self,
        autoencoder: "ConvAutoencoder | AutoencoderSection | None" = None,
        primary: "PrimaryCapsules | PrimarySection | None" = None,
        encoder: "CapsuleEncoder | EncoderSection | None" = None,
        decoder: "CapsuleDecoder | DecoderSection | None" = None,
        visited: Serializable | None = None,
        joint: Serializable | None = None,
        *,
        preset: "ProductOfExpertCapsulesPreset" = None,
        **settings: "Unpack[ProductOfExpertCapsulesArguments]",
    ) -> None:
        parts = (autoencoder, primary, encoder, decoder, visited, joint)
        if self.start(dict(zip(self.PARTS, parts)), preset, settings):
            self.assemble()

    def train_parts(self, run):
        """Train the parts in turn; the run skips a finished part and resumes an interrupted one.

        1. The autoencoder learns to reproduce images, by backpropagation.
        2. Its encoder gives features. The primary capsules x (I, D) centre, scale, split and squash
           them; nothing is learned but their mean and their size.
        3. The capsule encoder learns maps W by contrastive divergence (`core/divergence.py`), with
           z_j = sum_i c_ij W_ij x_i and c from routing (`core/routing.py`). Then the codes of the
           training images are whitened and squashed.
        4. The capsule decoder learns maps U by `decoder_rule`, so that squash(sum_j U_ji code_j)
           comes near x_i. The codes are those of step 3. Then shared capsules are fitted to the
           residuals, and a mixture of Gaussians to whole and shared codes.
        5. The model of all parts is written for Keras and as a SavedModel.
        """
        run.part("autoencoder", train_autoencoder)
        run.part("features", compute_features)
        run.part("encoder", train_encoder)
        run.part("decoder", lambda run: train_decoder(run, self._with_decoder))
        run.part("export", lambda run: export_images(run, self.from_parts(run)))

    @classmethod
    def from_parts(cls, run):
        mixtures = load_mixtures(run, "encoder/visited.npz") or load_mixtures(run)
        return cls._with_decoder(run, load_primary(run), load_part(run, "decoder"), *mixtures)

    @classmethod
    def _with_decoder(cls, run, primary, decoder, *mixtures):
        """Return the model of a run in float32, with the statistics of its training codes."""
        found = load_arrays(run, "encoder/visited.npz")
        autoencoder, encoder = (load_part(run, stage) for stage in ("autoencoder", "encoder"))
        model = cls.made(run, autoencoder, primary, encoder, decoder, *mixtures)
        model.settings = run.settings
        model.build((None, *autoencoder.image_shape))
        model.mean_direction.assign(found["mean_direction"])
        return model

    @classmethod
    def outline(cls, settings, image_shape):
        autoencoder = build_autoencoder(settings, image_shape)
        primary = build_primary(settings, autoencoder.feature_shape)
        encoder = build_encoder(settings, primary.capsules)
        decoder = build_decoder(settings, primary.capsules)
        shapes = {
            "image": tuple(image_shape),
            "feature map": autoencoder.feature_shape,
            "primary capsules": (primary.capsules, primary.dim),
            "expert capsules": (settings.encoder.capsules, settings.encoder.dim),
        }
        parameters = {
            "autoencoder": autoencoder.count_params(),
            "encoder": math.prod(encoder.experts.kernel.shape),
            "decoder": math.prod(decoder.primaries.kernel.shape),
        }
        return shapes, parameters

    @staticmethod
    def verdict(metrics):
        used = metrics.get("encoder", {}).get("capsules", {})
        error = metrics.get("decoder", {}).get("val_relative_error")
        return [
            *error_verdict(error, "Whole codes"),
            *usage_verdict(used.get("won")),
            *classes_verdict(used),
        ]

    def values_of(self, stage, part):
        found = flat_config(part)
        if stage == "encoder":
            kinds = {"experts_class": type(part.experts), "encoder_class": type(part)}
            ours = (CapsulePoE, CapsuleEncoder)
            name_of = keras.saving.get_registered_name
            found |= {name: name_of(kind) for name, kind in kinds.items() if kind not in ours}
        return found

    def assemble(self):
        experts = self.encoder.experts
        experts.check_squash("visible_units")
        self.capsules, self.dim = experts.capsules, experts.dim
        whole = (self.capsules + self.decoder.shared_capsules) * self.dim
        numbers = whole if self.joint is None else self.dim
        if self.visited is None:
            self.visited = GaussianMixtures(self.capsules, 1, numbers, rank=1, name="visited")
        if self.visited.dim != numbers:
            raise ValueError(
                f"`visited` must have {numbers} dimensions: whole and shared codes, or beside "
                f"`joint` one capsule. Received: dim={self.visited.dim}"
            )

    @property
    def units(self):
        """Units of the experts."""
        return self.encoder.experts.units

    @property
    def poles(self):
        """Expert biases (J, E), zero for experts with whitening, or None without bias."""
        bias, whitening = self.encoder.experts.bias, self.encoder.whitening
        return (
            None if bias is None else whitening.is_identity()[:, None] * ops.cast(bias, "float32")
        )

    @functools.cached_property
    def modes(self):
        """Modes `"single"`, one active capsule per image, and `"joint"`."""
        plain = "Its directions come from the paper's plain Gaussian."
        chart = (
            "Its directions come from a plain Gaussian; without whitening, in the chart of the "
            "half-sphere around the capsule's bias."
        )
        is_affine = self.encoder.experts.use_bias
        return {
            "single": Mode(
                ("prior", "half_space", "posterior"),
                self.capsules,
                "Each column shows one capsule, all others zero.",
                {
                    "prior": chart if is_affine else plain,
                    "half_space": "Its directions come from the half of the sphere that "
                    "training visited.",
                    "posterior": "Its codes come from a mixture fitted to those that training "
                    "visited"
                    + (
                        ", and shared capsules add detail." if self.decoder.shared_capsules else "."
                    ),
                },
            ),
            "joint": Mode(note="Whole codes, from the mixture fitted to those of training."),
        }

    @property
    def own_parameters(self):
        """Number of parameters of encoder and decoder."""
        return self.encoder.count_params() + self.decoder.count_params()

    def build_parts(self, input_shape):
        build_once(self.autoencoder, input_shape)
        build_once(self.primary, (None, *self.autoencoder.feature_shape))
        build_once(self.encoder, (None, self.primary.capsules, self.primary.dim))
        build_once(self.decoder, (None, self.capsules, self.dim))
        build_once(self.visited, None)
        if self.joint is not None:
            build_once(self.joint, None)
        self.mean_direction = self.add_weight(
            shape=(self.capsules, self.dim),
            initializer="zeros",
            trainable=False,
            name="mean_direction",
        )

    def code(self, images, coefficients=None):
        """Encode images (B, H, W, C); `coefficients="uniform"` turns routing off.

        Returns:
            Dict with squashed, whitened `capsules` (B, J, E), their lengths `probabilities` (B,
            J), and `free_energy` (B,) in nats. `experts` (B, J, E) are squashed but not whitened,
            so that their distances are comparable across experts. With shared capsules, their
            codes are `shared` (B, S, E).
        """
        return self._code(self.to_visible(images), coefficients)

    def featured_code(self, images):
        features = self.to_features(images)
        return {**self._code(self.primary(features)), "features": features}

    def coupling_maps(self, images: Any) -> Any:
        """Return how much each place of an image contributes to each expert capsule.

        Args:
            images: Tensor (B, H, W, C), pixels in `[0, 1]`.

        Returns:
            Tensor (B, h, w, J): the coupling coefficients, averaged over the primary capsules at
            a place of the feature map.

        Example:

        >>> import keras_capsule_poe as kcp
        >>> images = kcp.data.load_images("digits", limit=2).train.images / 255
        >>> kcp.load("mnist").coupling_maps(images).shape
        TensorShape([2, 6, 6, 20])
        """
        c = self.encoder.experts.route(self.to_visible(ops.cast(images, "float32"))).coefficients
        return at_places(c, self.routing_places)

    def routing_steps(self, images):
        """Return the routing of images (B, H, W, C) in each of T iterations, a dict of tensors.

        `coefficients` (B, T, h, w, J) are those of `coupling_maps`, `probabilities` (B, T, J) the
        lengths of the capsules. The first iteration has the initial coefficients.
        """
        experts, x = self.encoder.experts, self.to_visible(images)
        return routing_steps(experts.router(), experts.units, x, self.routing_places)

    @property
    def routing_places(self):
        """Height and width of the feature map, whose places have primary capsules."""
        return self.autoencoder.feature_shape[:2]

    def capsule_curve(
        self, images: Any, capsules: Any = (2, 3, 4, 5, 6, 8), steps: int = 150, seeds: int = 2
    ) -> dict[int, float]:
        """Compare numbers of capsules by how well they repeat on held-out images.

        For each number, capsule encoders with several seeds are trained on three quarters of the
        images, over the features of this model. The other images fall into groups by their most
        probable capsule. A number that images suggest gives the same groups with each seed.

        Args:
            images: Images, as of `encode`, at least 40.
            capsules: Integers, the numbers of capsules to compare.
            steps: Integer, the training steps of each encoder.
            seeds: Integer, how many encoders of each number are trained, at least 2.

        Returns:
            Dict from a number of capsules to the mean adjusted Rand index of the groups of two
            encoders: 1 for equal groups, 0 for chance. The number with the largest one repeats
            best.

        Raises:
            DataError: If the images have another shape, type or range.
            BadUse: If a number is no positive integer, or there are too few images.

        Example:

        >>> import keras_capsule_poe as kcp
        >>> digits = kcp.data.load_images("digits", limit=40).train.images
        >>> curve = kcp.load("mnist").capsule_curve(digits, capsules=[2], steps=1)
        >>> list(curve)
        [2]
        """
        return capsule_curve(self, self._checked(images), capsules, steps, seeds)

    def _code(self, x, coefficients=None):
        z = self.encoder.experts.route(x, coefficients).z
        capsules = self.encoder.whitening(z)
        found = {
            "capsules": capsules,
            "probabilities": length(capsules),
            "free_energy": free_energy(z, self.units),
            "experts": squashed(z, self.units),
        }
        if self.decoder.shared is not None:
            found["shared"] = self.decoder.code_shared(x, capsules)
        return found

    def visible_free_energy(self, x):
        """Return the free energy (B,) of squashed primary capsules (B, I, D), in nats."""
        return self.encoder.experts.free_energy(x)

    def decode_visible(self, capsules, shared=None):
        """Decode capsules (B, J, E), and shared ones (B, S, E), to primary capsules (B, I, D)."""
        return self.decoder(capsules, shared)

    def render(self, capsules, shared=None):
        """Decode capsules to a dict with `images` and `primary_capsules`, see `decode_visible`."""
        primary = self.decoder(capsules, shared)
        return {"images": self.from_visible(primary), "primary_capsules": primary}

    def to_visible(self, images):
        """Encode images (B, H, W, C) to squashed primary capsules (B, I, D)."""
        return self.primary(self.to_features(images))

    def from_visible(self, x):
        """Decode squashed primary capsules (B, I, D) to images (B, H, W, C)."""
        return self.from_features(self.primary.to_features(x))

    def code_of_capsule(self, capsule, seed, domain=None):
        n, (_, domain) = ops.shape(capsule)[0], self.resolve_mode("single", domain)
        dim = self.visited.rank if domain == "posterior" else self.dim
        noise = keras.random.normal((n, dim), seed=StatelessSeed(seed))
        choice = keras.random.uniform((n,), seed=StatelessSeed(seed, 2))
        return self.single_code(noise, choice, capsule, domain)

    def code_of_all(self, n, seed):
        mixture = self.joint or self.visited
        noise = keras.random.normal((n, mixture.rank), seed=StatelessSeed(seed))
        choice = keras.random.uniform((n,), seed=StatelessSeed(seed, 2))
        if self.joint is not None:
            return {"capsules": self.joint_code(noise, choice)}
        winner = mixture.group_of(keras.random.uniform((n,), seed=StatelessSeed(seed, 3)))
        return self.whole_code(noise, choice, winner)

    def single_code(self, noise, choice, capsule, domain=None):
        """Return a code, a dict with squashed `capsules` (N, J, E), all zero but one.

        Args:
            noise: Tensor (N, E), standard Gaussian; (N, R) for `"posterior"`, with R the rank of
                `visited`.
            choice: Tensor (N,), uniform in `[0, 1)`, selects a mixture component for `"posterior"`.
            capsule: Integer tensor (N,), the active capsules.
            domain: String. `"prior"` is the prior: the squashed noise (Figure 2, left), or for
                a biased expert directions in the half-sphere around its bias. `"half_space"`
                reflects the squashed noise into the half-space of the mean training direction
                (Figure 2, right). `"posterior"` takes the capsule and the shared ones from a
                `whole_code`; in models of former versions, directions from a mixture of theirs.
        """
        if domain not in self.modes["single"].domains:
            _, domain = self.resolve_mode("single", domain)
        chosen = ops.one_hot(capsule, self.capsules)[:, :, None]
        if domain == "posterior" and self.joint is None:
            code = self.whole_code(noise, choice, capsule)
            return {**code, "capsules": chosen * code["capsules"]}
        x = squashed(noise, self.units)
        if domain == "posterior":
            x = length(x, keepdims=True) * direction(self.visited(noise, choice, capsule))
        elif domain == "half_space":
            mean = ops.take(self.mean_direction, capsule, axis=0)
            x = ops.where(ops.sum(x * mean, axis=-1, keepdims=True) < 0, -x, x)
        elif self.poles is not None:
            x = length(x, keepdims=True) * from_chart(noise, ops.take(self.poles, capsule, axis=0))
        return {"capsules": ops.cast(chosen, x.dtype) * x[:, None, :]}

    def whole_code(self, noise, choice, winner):
        """Return a code drawn like those of the training images that capsules (N,) win.

        Args:
            noise: Tensor (N, R), standard Gaussian, with R the rank of `visited`.
            choice: Tensor (N,), uniform in `[0, 1)`.
            winner: Integer tensor (N,).
        """
        drawn = at_least_float32(self.visited(noise, choice, winner))
        capsules, shared = ops.split(drawn, [self.capsules * self.dim], axis=1)
        capsules = ops.reshape(capsules, (-1, self.capsules, self.dim))
        lengths = ops.maximum(length(capsules, keepdims=True), 1e-30)
        code = {"capsules": capsules * ops.minimum(1.0, LONGEST / lengths)}
        if self.decoder.shared is not None:
            code["shared"] = ops.reshape(shared, (-1, self.decoder.shared_capsules, self.dim))
        return code

    def joint_code(self, noise, choice):
        """Return whole codes (N, J, E) from the mixture of a model of a former version.

        Each code is scaled so that its longest capsule has the length of a squashed Gaussian.

        Args:
            noise: Tensor (N, R), standard Gaussian, with R the rank of `joint`.
            choice: Tensor (N,), uniform in `[0, 1)`.
        """
        drawn = self.joint(noise, choice, ops.zeros(ops.shape(choice), dtype="int32"))
        codes = ops.reshape(drawn, (-1, self.capsules, self.dim))
        longest = ops.max(length(codes), axis=-1)
        wanted = length(squashed(noise[:, : self.dim], self.units))
        return codes * (wanted / ops.maximum(longest, 1e-30))[:, None, None]

    def visible_noise(self, n, seed):
        """Sample squashed Gaussian noise (N, I, D), before the squash longer than features."""
        primary = self.primary
        shape = (n, primary.capsules, primary.dim)
        # Noise rarely aligns with an expert. At the length of features it activates none, and the
        # chain collapses to the mean image.
        deviation = 8 * primary.target_length / primary.dim**0.5
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
        code = self._code(x)
        rendered = self.render(*whole(code))
        unrouted = self._code(x, "uniform")["capsules"]
        return {
            "autoencoder": (self.from_features(features), images),
            "divergence_step": (self.from_visible(self.chain_step(x)), images),
            "whole_code": (rendered["images"], images),
            "one_capsule": (self.render(winner_alone(code["capsules"]))["images"], images),
            "routing_off": (self.render(unrouted)["images"], images),
            "primary_capsules": (rendered["primary_capsules"], x),
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
