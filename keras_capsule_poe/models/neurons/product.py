"""Product of expert neurons: codes, samples and, for some routings, a density."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.core.binary_states import draw_states
from keras_capsule_poe.core.harmonium import flattened
from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.core.randomness import StatelessSeed, draw_index, streams
from keras_capsule_poe.core.routing import winner_alone, winners
from keras_capsule_poe.core.sharding import in_parts
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.models.base.autoencoder import AutoencodedModel
from keras_capsule_poe.models.base.protocols import (
    UNSET,
    Density,
    GenerativeModel,
    LikelihoodModel,
    Mode,
    build_once,
)
from keras_capsule_poe.models.base.staged import StagedModel
from keras_capsule_poe.models.boltzmann.images import BLOCK, HarmoniumDensity, free_energies
from keras_capsule_poe.models.neurons.config import FAMILY

# Number of images that estimate the means of independent neurons.
_FITTED = 2048
_ABOUT = "primary capsules, {} real numbers, a density"
# Chains per chunk; the noise of all chains would take gigabytes.
_AT_ONCE = 250


class MixtureDensity(Density):
    """Exact density of the visible neurons of a `NeuronMixture`."""

    def __init__(self, model):
        self._model = model
        self.about = _ABOUT.format(_size(model))

    def log_weights(self, images):
        """Return log P (N,) of images (N, H, W, C), in nats."""
        return -_free_energies(self._model, images)

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
        visible = compiled(lambda x: _visible(model, x))
        self._v = map_batches(visible, images[:_FITTED], BLOCK).astype("float32")
        self._base = model.layer.independent(self._v)[0].reshape(-1).astype("float32")

    def log_weights(self, images):
        """Return the negative free energy (N,) of images, in nats."""
        return -_free_energies(self._model, images)

    def _harmonium(self):
        return flattened(self._model.layer.harmonium())

    def _chain_states(self, chains):
        sent = self._model.layer.sent(self._v[np.arange(chains) % len(self._v)])
        return ops.reshape(sent, (chains, -1))


def _visible(model, images):
    return model.primary.to_capsules(model.to_features(ops.cast(images, "float32")))


def _free_energies(model, images):
    return free_energies(lambda x: model.layer.free_energy(_visible(model, x)), images)


def _size(model):
    return int(ops.size(model.layer.visible_bias))


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class ProductOfExpertNeurons(
    StagedModel, LikelihoodModel, AutoencodedModel, GenerativeModel, keras.Model
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
        recipe: String, a named set of settings, one of `families.get("neurons").recipes`.
        **settings: Settings of the training by name, such as `seed=1` or
            `experts={"capsules": 30}`; also `name` and `dtype` of `keras.Model`.

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
    >>> experts = kcp.NeuronExperts(kcp.NeuronPoE(3, 2))
    >>> model = ProductOfExpertNeurons(autoencoder, primary, experts, joint_steps=2)
    >>> model.build((None, 20, 20, 1))
    >>> tuple(model.sample(5, seed=7)["images"].shape)
    (5, 20, 20, 1)

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons
    """

    PARTS = ("autoencoder", "primary", "experts", "top")
    NEEDED = ("autoencoder", "primary", "experts")
    FAMILY = FAMILY
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
        autoencoder: Serializable | dict | None = None,
        primary: Serializable | dict | None = None,
        experts: Serializable | dict | None = None,
        top: Serializable | dict | None = None,
        posterior_states: Any = UNSET,
        joint_steps: Any = UNSET,
        *,
        recipe: str | None = None,
        **settings: Any,
    ) -> None:
        parts = (autoencoder, primary, experts, top)
        given = {"posterior_states": posterior_states, "joint_steps": joint_steps}
        if experts is None or (isinstance(experts, dict) and "class_name" not in experts):
            # They are settings of the training, too.
            settings |= {name: value for name, value in given.items() if value is not UNSET}
        self.posterior_states = 256 if posterior_states is UNSET else posterior_states
        self.joint_steps = 100 if joint_steps is UNSET else joint_steps
        if self.start(dict(zip(self.PARTS, parts)), recipe, settings):
            self.capsules, self.dim = self.layer.capsules, self.layer.dim

    @property
    def layer(self):
        """The `NeuronPoE` of the experts."""
        return self.experts.machine

    @property
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
        self.visited = self.add_weight(
            shape=(self.capsules, self.posterior_states, self.dim),
            initializer=keras.initializers.Constant(0.5),
            trainable=False,
            name="visited",
        )
        self.shares = self.add_weight(
            shape=(self.capsules,),
            initializer=keras.initializers.Constant(1 / self.capsules),
            trainable=False,
            name="shares",
        )

    def code(self, images, coefficients=None):
        """Encode images (B, H, W, C); `coefficients="uniform"` turns routing off.

        Returns:
            Dict with `capsules` (B, J, E), their lengths `probabilities` (B, J), and `free_energy`
            (B,) in nats, given the coupling coefficients.
        """
        return self._code(self._features(images), coefficients)[0]

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
        """Sample codes (N, J, E) in which one capsule is active and all others are at rest.

        Args:
            capsule: Integer tensor (N,), the active capsules.
            seed: Integer or scalar integer tensor.
            domain: String. `"prior"` samples the prior of that capsule exactly, over all 2^E
                states. `"uniform"` sets each neuron with probability one half. `"posterior"`
                samples p(h | v) of a training image that the capsule won.
        """
        _, domain = self.resolve_mode("single", domain)
        first, second = streams(StatelessSeed(seed), 2)
        if domain == "prior":
            h = draw_states(self.layer.state_log_weights(), capsule, first)
        else:
            p = ops.full((ops.shape(capsule)[0], self.dim), 0.5)
            if domain == "posterior":
                which = draw_index(
                    ops.zeros((ops.shape(capsule)[0], self.posterior_states)), second
                )
                rows = capsule * self.posterior_states + which
                p = ops.take(ops.reshape(self.visited, (-1, self.dim)), rows, axis=0)
            h = ops.cast(keras.random.uniform(ops.shape(p), seed=first) < p, p.dtype)
        y = (ops.cast(h, "float32") - ops.take(self.rest(), capsule, axis=0)) / self.dim**0.5
        return ops.one_hot(capsule, self.capsules, dtype=y.dtype)[:, :, None] * y[:, None, :]

    def code_of_all(self, n, seed):
        """Sample codes (N, J, E) of all neurons: exactly, from the top layer, or by Gibbs steps."""
        if self.top is not None:
            return (self.top.sample(n, self.joint_steps, seed) - self.rest()) / self.dim**0.5
        if self.layer.routing == "mixture":
            _, h, _ = self.layer.draw(n, StatelessSeed(seed))
            return h / self.dim**0.5

        def walk(part, count):
            return self._walked(count, StatelessSeed(seed, part))

        rows = in_parts(walk, n, _AT_ONCE, (self.capsules, self.dim))
        return (rows - self.rest()) / self.dim**0.5

    def _walked(self, n, seed):
        """Return neurons (N, J, E) after Gibbs steps from noise."""
        # Each chain is routed like the average image won by one capsule.
        first, second, third = streams(seed, 3)
        logits = ops.log(ops.maximum(self.shares, 1e-30))
        winner = draw_index(ops.broadcast_to(logits, (n, self.capsules)), first)
        c, v = self.layer.coefficients_of_winner(winner), self.noise(n, second)
        return self.layer.gibbs(v, c, self.joint_steps, third)[1]

    def noise(self, n, seed):
        """Sample visible neurons (N, I, D) from the model with W = 0."""
        layer, bias = self.layer, self.layer.visible_bias
        visible = layer.neuron_units()[1]
        return layer.received(visible.sample(ops.broadcast_to(bias, (n, *bias.shape)), seed))

    # The state of the chain: visible neurons and coupling coefficients, concatenated

    def to_visible(self, images):
        """Return visible neurons and coupling coefficients, (B, I, D + J), of images."""
        v = self._features(images)
        return ops.concatenate([v, self.layer.route(v).coefficients], axis=-1)

    def from_visible(self, x):
        """Decode states (B, I, D + J) to images (B, H, W, C), as E[v | p(h | v)] without noise."""
        return self._images(self.layer.reconstruct(*self._parted(x)))

    def visible_noise(self, n, seed):
        """Sample states (N, I, D + J) from the model with W = 0 and average routing."""
        first, second = streams(StatelessSeed(seed), 2)
        layer = self.layer
        c = layer.mean_coefficients[0]
        c = ops.broadcast_to(c, (n, *c.shape))
        if layer.routing == "latent":
            parent = draw_index(ops.zeros_like(c), second)
            c = layer.coefficient_scale * ops.one_hot(parent, self.capsules, dtype=c.dtype)
        elif layer.routing == "mixture":
            parent = draw_index(ops.broadcast_to(layer.routing_bias, (n, self.capsules)), second)
            c = layer.coefficients_of_winner(parent)
        return ops.concatenate([self.noise(n, first), c], axis=-1)

    def chain_step(self, x, seed=None):
        """Return the next state (B, I, D + J): a Gibbs step with `seed`, else mean field."""
        # The coefficients stay constant, except that Gibbs steps also sample latent parents.
        v, c = self._parted(x)
        v, _, c = self.layer.gibbs(v, c, 1, seed)
        return ops.concatenate([v, c], axis=-1)

    def _parted(self, x):
        return x[..., : self.primary.dim], x[..., self.primary.dim :]

    def _features(self, images):
        return self.primary.to_capsules(self.to_features(images))

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

    def get_config(self):
        if not self.is_fitted:
            return super().get_config()
        own = {"posterior_states": self.posterior_states, "joint_steps": self.joint_steps}
        return {**super().get_config(), **own}
