"""The whole model: autoencoder, primary capsules, expert capsules and decoder in one."""

import keras
from keras import ops

from keras_capsule_poe.functions.norms import direction, length
from keras_capsule_poe.functions.squash import squash
from keras_capsule_poe.functions.units import free_energy
from keras_capsule_poe.layers.gaussian_mixtures import GaussianMixtures
from keras_capsule_poe.models.generative import Endpoints

DOMAINS = ("complete", "restricted", "visited")


@keras.saving.register_keras_serializable("keras_capsule_poe")
class ProductOfExpertCapsules(Endpoints, keras.Model):
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

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643)
    """

    def __init__(self, autoencoder, primary, encoder, decoder, visited=None, joint=None, **kwargs):
        super().__init__(**kwargs)
        parts = (autoencoder, primary, encoder, decoder, visited, joint)
        self.autoencoder, self.primary, self.encoder, self.decoder, visited, joint = (
            keras.saving.deserialize_keras_object(part) if isinstance(part, dict) else part
            for part in parts
        )
        experts = self.encoder.experts
        self.capsules, self.dim = experts.capsules, experts.dim
        whole = self.capsules * self.dim
        self.visited = visited or GaussianMixtures(self.capsules, 1, self.dim, name="visited")
        self.joint = joint or GaussianMixtures(1, 1, whole, rank=1, name="joint")

    @property
    def joint_rank(self):
        """Size of the noise that `draw_joint` takes."""
        return self.joint.rank

    def build(self, input_shape):
        for part, shape in (
            (self.autoencoder, input_shape),
            (self.primary, lambda: (None, *self.autoencoder.feature_shape)),
            (self.encoder, lambda: (None, self.primary.capsules, self.primary.dim)),
            (self.decoder, (None, self.capsules, self.dim)),
        ):
            if not part.built:
                part.build(shape() if callable(shape) else shape)

        for prior in (self.visited, self.joint):
            if not prior.built:
                prior.build()
        self.mean_direction = self.add_weight(
            shape=(self.capsules, self.dim),
            initializer="zeros",
            trainable=False,
            name="mean_direction",
        )
        self.built = True

    def call(self, images):
        return self.reconstruct(images)["images"]

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)

    def to_primary(self, images):
        """Images (B, H, W, C), pixels in [0, 1], to squashed primary capsules (B, I, D)."""
        return self.primary(self.autoencoder.encode(images))

    def from_primary(self, x):
        """Squashed primary capsules (B, I, D) to images (B, H, W, C), pixels in [0, 1]."""
        return self.autoencoder.decode(self.primary.to_features(x))

    def code(self, images):
        """Everything that one routing of images gives.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            dict: `capsules` (B, J, E), squashed, in their frames; `probabilities` (B, J), their
            lengths; `free_energy` (B,), nats.
        """
        z = self.encoder.experts.route(self.to_primary(images)).z
        capsules = self.encoder.frames(z)
        return {
            "capsules": capsules,
            "probabilities": length(capsules),
            "free_energy": free_energy(z),
        }

    def render(self, codes):
        """Squashed expert capsules (B, J, E) as `images` and `primary_capsules` (B, I, D)."""
        primary = self.decoder(codes)
        return {"images": self.from_primary(primary), "primary_capsules": primary}

    def gibbs_step(self, images):
        """Images (B, H, W, C) after one contrastive-divergence step of their primary capsules."""
        return self.from_primary(self.encoder.experts.mean_field_step(self.to_primary(images)))

    def draw(self, noise, choice, capsule, domain="complete"):
        """Codes in which one capsule is on.

        Args:
            noise: Tensor (N, E), standard Gaussian.
            choice: Tensor (N,), uniform in [0, 1); the component that `"visited"` draws from.
            capsule: Integer tensor (N,), the capsule of each code.
            domain: `"complete"`: the Gaussian as it is, squashed, the paper's Figure 2 (left).
                `"restricted"`: reflected into the half-sphere around the mean direction that
                training visited, Figure 2 (right); in their frames codes are centred, and that
                direction says little. `"visited"`: the orientation from the mixture
                of Gaussians of the codes of the training images on which the capsule was the
                most probable, the length that of the squashed Gaussian.

        Returns:
            Tensor (N, J, E), squashed; all capsules but one are zero.

        Raises:
            ValueError: If `domain` is unknown.
        """
        if domain not in DOMAINS:
            listed = ", ".join(repr(known) for known in DOMAINS)
            raise ValueError(f"`domain` must be one of {listed}. Received: domain={domain!r}")
        x = squash(noise)
        if domain == "visited":
            x = length(x, keepdims=True) * direction(self.visited(noise, choice, capsule))
        elif domain == "restricted":
            side = ops.sum(x * ops.take(self.mean_direction, capsule, axis=0), axis=-1)
            x = ops.where((side < 0)[:, None], -x, x)
        chosen = ops.one_hot(capsule, self.capsules, dtype=x.dtype)
        return chosen[:, :, None] * x[:, None, :]

    def draw_joint(self, noise, choice):
        """Whole codes from the mixture fitted to those of training.

        Each is stretched so that its longest capsule is as long as a squashed Gaussian of E
        dimensions, as single capsules are drawn.

        Args:
            noise: Tensor (N, R), standard Gaussian, R the rank of `joint`.
            choice: Tensor (N,), uniform in [0, 1).

        Returns:
            Tensor (N, J, E), squashed.
        """
        drawn = self.joint(noise, choice, ops.zeros(ops.shape(choice), dtype="int32"))
        codes = ops.reshape(drawn, (-1, self.capsules, self.dim))
        longest = ops.max(length(codes), axis=-1)
        wanted = length(squash(noise[:, : self.dim]))
        return codes * (wanted / ops.maximum(longest, 1e-30))[:, None, None]

    def get_config(self):
        parts = ("autoencoder", "primary", "encoder", "decoder", "visited", "joint")
        return {
            **super().get_config(),
            **{part: keras.saving.serialize_keras_object(getattr(self, part)) for part in parts},
        }
