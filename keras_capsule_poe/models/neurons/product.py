"""The whole product of expert neurons: autoencoder, primary capsules and experts."""

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
    """Image model of an autoencoder, primary capsules and binary expert neurons.

    The visible neurons are the autoencoder's features, centred, scaled and cut into primary
    capsules. A code is (h - lambda)/sqrt(E), so each capsule has a length from zero to one. It is
    decoded with the mean coupling coefficients of the training images that its longest capsule won.

    Args:
        autoencoder: Trained `ConvAutoencoder`.
        primary: Adapted `PrimaryCapsules`.
        experts: Trained `NeuronExperts`.
        top: `NeuronExperts` trained on the experts' neurons, sampled in mode `"joint"`, or None.
        remembered: Integer K, the number of stored p(h | v) per capsule.
        joint_steps: Integer, the Gibbs steps of mode `"joint"`.
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
        """Modes `"single"`, one active capsule per image, and `"joint"`."""
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
        """Number of parameters of the experts."""
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
        code = {
            "capsules": y / self.dim**0.5,
            "probabilities": self.experts.activity(y),
            "free_energy": layer.free_energy(v, c),
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

    def get_config(self):
        own = {"remembered": self.remembered, "joint_steps": self.joint_steps}
        return {**super().get_config(), **own}
