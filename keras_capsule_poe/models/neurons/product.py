"""The whole model: autoencoder, primary capsules and expert neurons in one."""

import keras
from keras import ops

from keras_capsule_poe.functions.randomness import draw_index, streams
from keras_capsule_poe.functions.winners import winner_alone, winners
from keras_capsule_poe.models.autoencoded import AutoencodedModel, build_once
from keras_capsule_poe.models.generative import GenerativeModel, Mode
from keras_capsule_poe.models.neurons.density import NeuronLikelihood
from keras_capsule_poe.models.neurons.draws import NeuronDraws
from keras_capsule_poe.models.randomness import StatelessSeed


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ProductOfExpertNeurons(
    NeuronLikelihood, NeuronDraws, AutoencodedModel, GenerativeModel, keras.Model
):
    """Images to capsules of neurons and back, and images from single capsules.

    The visible neurons are the features of an autoencoder, cut into primary capsules, centred
    and scaled, not squashed. A code is how far neurons are from rest, (h - lambda)/sqrt(E): its
    length, the capsule's activity, is in [0, 1]. What a code does not say is its routing: it is
    decoded with the mean coefficients of the training images that its longest capsule won.

    Args:
        autoencoder: `ConvAutoencoder`, trained.
        primary: `PrimaryCapsules`, adapted.
        experts: `NeuronExperts`, trained.
        top: `NeuronExperts` of the experts' neurons, trained, from which mode `"joint"` draws
            these; or None.
        remembered: int, K, images whose p(h | v) are kept for each capsule.
        joint_steps: int, Gibbs steps from noise of mode `"joint"`, in the top layer if there is
            one.
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
    >>> experts = kcp.NeuronExperts(kcp.NeuronPoE(3, 2))
    >>> model = ProductOfExpertNeurons(autoencoder, primary, experts, joint_steps=2)
    >>> model.build((None, 20, 20, 1))
    >>> tuple(model.sample(5, seed=7)["images"].shape)
    (5, 20, 20, 1)

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons
    """

    PARTS = ("autoencoder", "primary", "experts", "top")
    TITLE = "Product of expert neurons (arXiv 1907.11639)"
    CHAINS = ("meanfield", "gibbs")
    CEILINGS = ("autoencoder", "divergence_step", "whole_code")
    ENDPOINTS = {
        **GenerativeModel.ENDPOINTS,
        "sample_capsule": ("capsule", "n", "seed"),
        "sample_joint": ("n", "seed"),
        "gibbs": ("images", "steps", "seed"),
    }

    def __init__(
        self, autoencoder, primary, experts, top=None, remembered=256, joint_steps=100, **kwargs
    ):
        super().__init__(**kwargs)
        self.set_parts(autoencoder, primary, experts, top)
        self.capsules, self.dim = self.layer.capsules, self.layer.dim
        self.remembered, self.joint_steps = remembered, joint_steps

    @property
    def layer(self):
        """The `NeuronPoE` of the experts."""
        return self.experts.machine

    @property
    def MODES(self):
        """Each image from one capsule, or from all of them together."""
        return {
            "single": Mode(
                ("complete", "uniform", "visited"),
                self.capsules,
                "Each column shows one capsule, all others at rest.",
                {
                    "complete": "Its states are drawn exactly, all of them enumerated.",
                    "uniform": "All of its states are as likely.",
                    "visited": "Its states are those of training images that it won.",
                },
            ),
            "joint": Mode(note="All neurons, after Gibbs steps from noise."),
        }

    @property
    def own_parameters(self):
        """How many parameters model the features."""
        return self.experts.count_params()

    def build(self, input_shape):
        build_once(self.autoencoder, input_shape)
        build_once(self.primary, (None, *self.autoencoder.feature_shape))
        build_once(self.experts, (None, self.primary.capsules, self.primary.dim))
        if self.top is not None:
            build_once(self.top, (None, self.capsules, self.dim))
        self.visited = self.add_weight(
            shape=(self.capsules, self.remembered, self.dim),
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
        self.built = True

    # Codes

    def code(self, images, coefficients=None):
        """Everything that one routing of images gives.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].
            coefficients: `"uniform"`: all routing coefficients alike; `None`: routed.

        Returns:
            dict: `capsules` (B, J, E), departures from rest over sqrt(E); `probabilities`
            (B, J), their lengths; `free_energy` (B,), nats, given the routing.
        """
        return self._code(self._features(images), coefficients)[0]

    def featured_code(self, images):
        features = self.to_features(images)
        return {**self._code(self.primary.to_capsules(features))[0], "features": features}

    def _code(self, v, coefficients=None):
        layer = self.layer
        c, y = layer.infer(v, coefficients)
        code = {
            "capsules": y / self.dim**0.5,
            "probabilities": self.experts.activity(y),
            "free_energy": layer.free_energy(v, c),
        }
        return code, c

    def render(self, capsules):
        """Codes (B, J, E) as `images` and `primary_capsules` (B, I, D), E[v | h]."""
        v = self._decoded(capsules, self.layer.coefficients_of_winner(winners(capsules)))
        return {"images": self._images(v), "primary_capsules": v}

    def _decoded(self, capsules, coefficients):
        # Traversals leave what neurons can be.
        rest = self.rest()
        y = ops.clip(self.dim**0.5 * capsules, -rest, 1 - rest)
        return self.layer.decode(y, coefficients)

    # The chain: visible neurons and, side by side with them, the coefficients that it keeps

    def to_visible(self, images):
        """(B, I, D + J) of images (B, H, W, C): visible neurons and their routing coefficients."""
        v = self._features(images)
        return ops.concatenate([v, self.layer.route(v).coefficients], axis=-1)

    def from_visible(self, x):
        """Images (B, H, W, C) of a chain's state: E[v | p(h | v)], without the noise of v."""
        return self._images(self.layer.reconstruct(*self._parted(x)))

    def visible_noise(self, n, seed):
        """States (N, I, D + J) of noise: the machine without maps, its routing the mean one."""
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
        """A chain's state (B, I, D + J) after one step: mean field, or with a `seed` Gibbs.

        The coefficients stay as they are, unless parents are latent, which are drawn too.
        """
        v, c = self._parted(x)
        v, _, c = self.layer.gibbs(v, c, 1, seed)
        return ops.concatenate([v, c], axis=-1)

    def _parted(self, x):
        return x[..., : self.primary.dim], x[..., self.primary.dim :]

    # Features

    def _features(self, images):
        return self.primary.to_capsules(self.to_features(images))

    def _images(self, v):
        return self.from_features(self.primary.from_capsules(v))

    def reconstructions(self, images):
        """Images decoded from their features, from one mean-field step, and from codes.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            dict of pairs (decoded, original): of images `autoencoder`, `divergence_step` (their
            own routing held), `whole_code` (the routing of the winner), `one_capsule` (the most
            active one alone) and `routing_off` (uniform coefficients throughout);
            `primary_capsules` (B, I, D), of the whole code.
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

    def get_config(self):
        own = {"remembered": self.remembered, "joint_steps": self.joint_steps}
        return {**super().get_config(), **own}
