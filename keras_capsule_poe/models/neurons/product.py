"""Product of expert neurons: how it is trained, codes, samples and a density."""

import functools
import math
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.core.enumeration import draw_states
from keras_capsule_poe.core.harmonium import flattened
from keras_capsule_poe.core.labels import winner_alone, winners
from keras_capsule_poe.core.numerics import StatelessSeed, compiled, draw_index, streams
from keras_capsule_poe.core.sharding import in_parts
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.layers.capsules import PrimaryCapsules
from keras_capsule_poe.models.base.autoencoder import AutoencodedModel, ConvAutoencoder
from keras_capsule_poe.models.base.features import (
    build_autoencoder,
    build_primary,
    compute_features,
    load_arrays,
    load_part,
    train_autoencoder,
)
from keras_capsule_poe.models.base.model import (
    TrainedModel,
    error_verdict,
    export_images,
    usage_verdict,
)
from keras_capsule_poe.models.base.protocols import (
    GenerativeModel,
    LikelihoodModel,
    Mode,
    build_once,
)
from keras_capsule_poe.models.boltzmann.images import BLOCK, HarmoniumDensity, free_energies
from keras_capsule_poe.models.neurons.experts import NeuronExperts, train_experts, train_top
from keras_capsule_poe.models.neurons.settings import NeuronSettings

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from keras_capsule_poe._keywords import (
        AutoencoderSection,
        ExpertsSection,
        PrimarySection,
        ProductOfExpertNeuronsArguments,
        ProductOfExpertNeuronsPreset,
        TopSection,
    )

# Number of images that estimate the means of independent neurons.
_FITTED = 2048
# Chains per chunk; the noise of all chains would take gigabytes.
_AT_ONCE = 250
_NO_LIKELIHOOD = {
    "per_image": "its normaliser is another one for each image's routing",
    "latent": "it is summed over all parents of all parts; free_energy is its bound",
}


class NeuronDensity(HarmoniumDensity):
    """Density of neurons with averaged routing, a Boltzmann machine fitted to uint8 images."""

    def __init__(self, model, images, seed=0):
        self._model, self._seed = model, seed
        size = math.prod(model.layer.visible_bias.shape)
        self.about = f"primary capsules, {size} real numbers, a density"
        visible = compiled(lambda x: model.visible(ops.cast(x, "float32")))
        self._v = map_batches(visible, images[:_FITTED], BLOCK).astype("float32")
        self._base = model.layer.independent(self._v)[0].reshape(-1).astype("float32")

    def log_weights(self, images):
        """Return log P + log Z (N,) of images (N, H, W, C), in nats."""
        model = self._model

        def free_energy(x):
            return model.layer.free_energy(model.visible(ops.cast(x, "float32")))

        return -free_energies(free_energy, images)

    def _harmonium(self):
        return flattened(self._model.layer.harmonium())

    def _chain_states(self, chains):
        sent = self._model.layer.sent(self._v[np.arange(chains) % len(self._v)])
        return ops.reshape(sent, (chains, -1))


class MixtureDensity(NeuronDensity):
    """Exact density of the visible neurons of a `NeuronMixture`."""

    def exact(self):
        """Return zero: the density is normalized."""
        return 0.0

    def bracket(self, temperatures, chains, seed):
        """Return None: log Z is exact and needs no annealing."""
        return None


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class ProductOfExpertNeurons(
    TrainedModel, LikelihoodModel, AutoencodedModel, GenerativeModel, keras.Model
):
    """Unsupervised capsules of binary neurons that encode, decode and generate images.

    `fit(images)` trains a convolutional autoencoder, primary capsules and the experts in turn,
    without labels. Given trained parts, the constructor assembles them instead.

    The visible neurons are the autoencoder's features, centred, scaled and cut into primary
    capsules. A code is (h - lambda)/sqrt(E), so each capsule has a length from zero to one. It is
    decoded with the mean coupling coefficients of the training images that its longest capsule won.

    Args:
        autoencoder: Trained `ConvAutoencoder`.
        primary: Adapted `PrimaryCapsules`.
        experts: Trained `NeuronExperts`.
        top: `NeuronExperts` trained on the experts' neurons, sampled in mode `"joint"`, or None.
        posterior_states: Integer K, the number of stored p(h | v) per capsule.
        joint_steps: Integer, the Gibbs steps of mode `"joint"`.
        preset: String, a named set of settings: `"held"` (the default), `"latent"`, `"mixture"` or
            `"boltzmann"`.
        **settings: Settings of the parts by name, such as `seed=1` or `experts={"capsules": 30}`;
            see `NeuronSettings`. Also `name` and `dtype` of `keras.Model`.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in `[0, 1]`.

    Returns:
        Tensor (B, H, W, C), the images decoded from their codes.

    Raises:
        ConfigError: If a setting does not exist or its value is not valid.

    Example:

    >>> import keras_capsule_poe as kcp
    >>> autoencoder = kcp.ConvAutoencoder(filters=2)
    >>> autoencoder.build((None, 20, 20, 1))
    >>> primary = kcp.PrimaryCapsules(4)
    >>> primary.build((None, *autoencoder.feature_shape))
    >>> experts = kcp.NeuronExperts(kcp.NeuronPoE(3, 2))
    >>> model = ProductOfExpertNeurons(autoencoder, primary, experts, joint_steps=2)
    >>> model.build((None, 20, 20, 1))
    >>> model.sample(5, seed=7)
    Samples(images: (5, 20, 20, 1), capsules: (5, 3, 2), index: (5,))

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons
    """

    PARTS = ("autoencoder", "primary", "experts", "top")
    NEEDED = ("autoencoder", "primary", "experts")
    PART_OF = {"features": "primary"}
    SETTINGS = NeuronSettings
    TITLE = "Product of expert neurons (arXiv 1907.11639)"
    CHAINS = ("meanfield", "gibbs")
    upper_bounds = ("autoencoder", "divergence_step", "whole_code")
    ENDPOINTS = {
        **GenerativeModel.ENDPOINTS,
        "sample_capsule": ("capsule", "n", "seed"),
        "sample_joint": ("n", "seed"),
        "gibbs": ("images", "steps", "seed"),
    }

    def __init__(
        self,
        autoencoder: "ConvAutoencoder | AutoencoderSection | None" = None,
        primary: "PrimaryCapsules | PrimarySection | None" = None,
        experts: "NeuronExperts | ExpertsSection | None" = None,
        top: "NeuronExperts | TopSection | None" = None,
        posterior_states: int | None = None,
        joint_steps: int | None = None,
        *,
        preset: "ProductOfExpertNeuronsPreset" = None,
        **settings: "Unpack[ProductOfExpertNeuronsArguments]",
    ) -> None:
        parts = (autoencoder, primary, experts, top)
        has_parts = self.start(dict(zip(self.PARTS, parts)), preset, settings)
        given = {"posterior_states": posterior_states, "joint_steps": joint_steps}
        given = {name: value for name, value in given.items() if value is not None}
        self.settings.set("experts", given)
        if has_parts:
            self.assemble()

    def train_parts(self, run):
        """Train the parts in turn; the run skips a finished part and resumes an interrupted one.

        1. The autoencoder learns to reproduce images, by backpropagation.
        2. Its encoder gives features, which the primary capsules centre and scale: the visible
           neurons v (I, D).
        3. The experts learn maps W between v and the hidden neurons h (J, E) by contrastive
           divergence, or by the exact gradient of a mixture. Then p(h | v) of training images is
           stored for each capsule.
        4. A second layer, if there is one, learns the distribution of h.
        5. The model of all parts is written for Keras and as a SavedModel.
        """
        run.part("autoencoder", train_autoencoder)
        run.part("features", compute_features)
        run.part("experts", train_experts)
        if run.settings.has_top:
            run.part("top", train_top)
        run.part("export", lambda run: export_images(run, self.from_parts(run)))

    @classmethod
    def from_parts(cls, run):
        stages = ("autoencoder", "features", "experts", *(["top"] * run.settings.has_top))
        parts = [load_part(run, stage) for stage in stages]
        model = cls.made(run, *parts)
        model.build((None, *model.image_shape))
        found = load_arrays(run, "experts/visited.npz")
        model.posteriors.assign(found["visited"])
        model.shares.assign(found["shares"])
        return model

    @classmethod
    def outline(cls, settings, image_shape):
        autoencoder = build_autoencoder(settings, image_shape)
        primary = build_primary(settings, autoencoder.feature_shape)
        experts = settings.experts
        visible = primary.capsules, primary.dim
        hidden = experts.capsules, experts.dim
        shapes = {
            "image": tuple(image_shape),
            "feature map": autoencoder.feature_shape,
            "primary capsules": visible,
            "expert neurons": hidden,
        }
        below, above = math.prod(visible), math.prod(hidden)
        parameters = {
            "autoencoder": autoencoder.count_params(),
            "experts": below * above + below + above,
        }
        return shapes, parameters

    @staticmethod
    def verdict(metrics):
        experts = metrics.get("experts", {})
        error = experts.get("val_relative_error")
        return [*error_verdict(error, "Reconstructions"), *usage_verdict(experts.get("won"))]

    def assemble(self):
        self.capsules, self.dim = self.layer.capsules, self.layer.dim

    @property
    def layer(self):
        """The `NeuronPoE` of the experts."""
        return self.experts.machine

    @functools.cached_property
    def modes(self):
        """Modes `"single"`, one active capsule per image, and `"joint"`."""
        return {
            "single": Mode(
                ("prior", "uniform", "posterior"),
                self.capsules,
                "Each column shows one capsule, all others at rest.",
                {
                    "prior": "Its states are drawn exactly, all of them enumerated.",
                    "uniform": "All of its states are as likely.",
                    "posterior": "Its states are those of training images that it won.",
                },
            ),
            "joint": Mode(note="All neurons, after Gibbs steps from noise."),
        }

    @property
    def own_parameters(self):
        """Number of parameters of the experts."""
        return self.experts.count_params()

    def build_parts(self, input_shape):
        build_once(self.autoencoder, input_shape)
        build_once(self.primary, (None, *self.autoencoder.feature_shape))
        build_once(self.experts, (None, self.primary.capsules, self.primary.dim))
        if self.top is not None:
            build_once(self.top, (None, self.capsules, self.dim))
        constant, states = keras.initializers.Constant, self.settings.experts.posterior_states
        self.posteriors = self.add_weight(
            (self.capsules, states, self.dim), constant(0.5), trainable=False, name="visited"
        )
        self.shares = self.add_weight(
            (self.capsules,), constant(1 / self.capsules), trainable=False, name="shares"
        )

    def code(self, images, coefficients=None):
        """Encode images (B, H, W, C); `coefficients="uniform"` turns routing off.

        Returns:
            Dict with `capsules` (B, J, E), their lengths `probabilities` (B, J), and `free_energy`
            (B,) in nats, given the coupling coefficients.
        """
        return self._code(self.visible(images), coefficients)[0]

    def featured_code(self, images):
        features = self.to_features(images)
        return {**self._code(self.primary.to_capsules(features))[0], "features": features}

    def _code(self, v, coefficients=None):
        layer = self.layer
        c, y = layer.infer(v, coefficients)
        # A mixture has the density of v itself.
        is_mixture = layer.routing == "mixture" and coefficients is None
        code = {
            "capsules": y / self.dim**0.5,
            "probabilities": self.experts.activity(y),
            "free_energy": layer.free_energy(v, None if is_mixture else c),
        }
        return code, c

    def render(self, capsules):
        """Decode codes (B, J, E) to a dict with `images` and `primary_capsules` (B, I, D)."""
        v = self._decoded(capsules, self.layer.coefficients_of_winner(winners(capsules)))
        return {"images": self._images(v), "primary_capsules": v}

    def _decoded(self, capsules, coefficients):
        # Traversals can leave the range of the neurons.
        rest = self.rest()
        y = ops.clip(self.dim**0.5 * capsules, -rest, 1 - rest)
        return self.layer.decode(y, coefficients)

    def rest(self):
        """Return the rest values lambda (J, E) of the neurons, zero without centring."""
        offset = self.layer.hidden_offset
        return ops.zeros((self.capsules, self.dim)) if offset is None else offset

    def neuron_values(self) -> Any:
        """Return the values (J, E) in a code of neurons that are off, and of those that are on."""
        rest = ops.convert_to_numpy(self.rest())
        return -rest / self.dim**0.5, (1 - rest) / self.dim**0.5

    def code_of_capsule(self, capsule, seed, domain=None):
        """Sample codes, `capsules` (N, J, E), of which one is active and the others are at rest.

        Args:
            capsule: Integer tensor (N,), the active capsules.
            seed: Integer or scalar integer tensor.
            domain: String. `"prior"` samples the prior of that capsule exactly, over all 2^E
                states. `"uniform"` sets each neuron with probability one half. `"posterior"`
                samples p(h | v) of a training image that the capsule won.
        """
        if domain not in self.modes["single"].domains:
            _, domain = self.resolve_mode("single", domain)
        first, second = streams(StatelessSeed(seed), 2)
        if domain == "prior":
            h = draw_states(self.layer.state_log_weights(), capsule, first)
        else:
            p = ops.full((ops.shape(capsule)[0], self.dim), 0.5)
            if domain == "posterior":
                states = self.posteriors.shape[1]
                which = draw_index(ops.zeros((ops.shape(capsule)[0], states)), second)
                rows = capsule * states + which
                p = ops.take(ops.reshape(self.posteriors, (-1, self.dim)), rows, axis=0)
            h = ops.cast(keras.random.uniform(ops.shape(p), seed=first) < p, p.dtype)
        y = (ops.cast(h, "float32") - ops.take(self.rest(), capsule, axis=0)) / self.dim**0.5
        chosen = ops.one_hot(capsule, self.capsules, dtype=y.dtype)
        return {"capsules": chosen[:, :, None] * y[:, None, :]}

    def code_of_all(self, n, seed):
        """Sample `capsules` (N, J, E) exactly, from the top layer, or by Gibbs steps."""

        def walked(part, count):
            return self._walked(count, StatelessSeed(seed, part))

        if self.top is not None:
            h = self.top.sample(n, self.settings.experts.joint_steps, seed)
        elif self.layer.routing == "mixture":
            _, h, _ = self.layer.draw(n, StatelessSeed(seed))
        else:
            h = in_parts(walked, n, _AT_ONCE, (self.capsules, self.dim))
        return {"capsules": (h - self.rest()) / self.dim**0.5}

    def _walked(self, n, seed):
        """Return neurons (N, J, E) after Gibbs steps from noise."""
        # Each chain is routed like the average image won by one capsule.
        first, second, third = streams(seed, 3)
        logits = ops.log(ops.maximum(self.shares, 1e-30))
        winner = draw_index(ops.broadcast_to(logits, (n, self.capsules)), first)
        c, v = self.layer.coefficients_of_winner(winner), self.layer.noise(n, second)
        return self.layer.gibbs(v, c, self.settings.experts.joint_steps, third)[1]

    def visible(self, images):
        """Return the visible neurons (B, I, D) of images (B, H, W, C)."""
        return self.primary.to_capsules(self.to_features(images))

    # The state of the chain: visible neurons and coupling coefficients, concatenated

    def to_visible(self, images):
        """Return visible neurons and coupling coefficients, (B, I, D + J), of images."""
        v = self.visible(images)
        return ops.concatenate([v, self.layer.route(v).coefficients], axis=-1)

    def from_visible(self, x):
        """Decode states (B, I, D + J) to images (B, H, W, C), as E[v | p(h | v)] without noise."""
        return self._images(self.layer.reconstruct(*self._parted(x)))

    def visible_noise(self, n, seed):
        """Sample states (N, I, D + J) from the model with W = 0 and average routing."""
        first, second = streams(StatelessSeed(seed), 2)
        v, c = self.layer.noise(n, first), self.layer.prior_coefficients(n, second)
        return ops.concatenate([v, c], axis=-1)

    def chain_step(self, x, seed=None):
        """Return the next state (B, I, D + J): a Gibbs step with `seed`, else mean field."""
        # The coefficients stay constant, except that Gibbs steps also sample latent parents.
        v, c = self._parted(x)
        v, _, c = self.layer.gibbs(v, c, 1, seed)
        return ops.concatenate([v, c], axis=-1)

    def _parted(self, x):
        return x[..., : self.primary.dim], x[..., self.primary.dim :]

    def _images(self, v):
        return self.from_features(self.primary.from_capsules(v))

    def reconstructions(self, images):
        """Reconstruct images from each level of the model.

        Returns:
            Dict of pairs (decoded, original). The images are decoded from features
            (`autoencoder`), a mean-field step with the image's routing (`divergence_step`), the
            code (`whole_code`), its longest capsule (`one_capsule`), and uniform routing
            (`routing_off`). `primary_capsules` (B, I, D) are decoded from the code.
        """
        features = self.to_features(images)
        v = self.primary.to_capsules(features)
        code, c = self._code(v)
        whole = self.render(code["capsules"])
        unrouted, uniform = self._code(v, "uniform")
        return {
            "autoencoder": (self.from_features(features), images),
            "divergence_step": (self._images(self._decoded(code["capsules"], c)), images),
            "whole_code": (whole["images"], images),
            "one_capsule": (self.render(winner_alone(code["capsules"]))["images"], images),
            "routing_off": (self._images(self._decoded(unrouted["capsules"], uniform)), images),
            "primary_capsules": (whole["primary_capsules"], v),
        }

    def density(self, images, seed=0, **named):
        """Return the density of the visible neurons; raise `BadUse` if the routing defines none."""
        self.check_named(**named)
        routing = self.layer.routing
        if routing == "mixture":
            return MixtureDensity(self, images, seed)
        if routing == "averaged":
            return NeuronDensity(self, images, seed)
        raise BadUse(
            f"Expert neurons with routing={routing!r} have no likelihood that can be had: "
            f"{_NO_LIKELIHOOD[routing]}. Train with routing 'mixture' or 'averaged'."
        )
