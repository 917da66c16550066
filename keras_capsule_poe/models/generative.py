"""What one can ask of a trained product, in terms of its two halves."""

import keras
from keras import ops

from keras_capsule_poe.models.randomness import StatelessSeed


class Endpoints:
    """Endpoints of a product: the same for the Keras model and for its SavedModel.

    Needs `code(images)`, `render(codes)`, `draw(noise, choice, capsule, domain)` and
    `draw_joint(noise, choice)`, as `ProductOfExpertCapsules` has them, and the numbers
    `capsules`, `dim` and `joint_rank`.
    """

    def encode(self, images):
        """Expert capsules of images.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            dict: `capsules` (B, J, E), squashed; `probabilities` (B, J), their lengths.
        """
        return _chosen(self.code(images), "capsules", "probabilities")

    def free_energy(self, images):
        """Free energy of images, (B,) under the key `free_energy`, nats; lower is likelier."""
        return _chosen(self.code(images), "free_energy")

    def decode(self, capsules):
        """Images (B, H, W, C), under the key `images`, of squashed expert capsules (B, J, E)."""
        return _chosen(self.render(capsules), "images")

    def reconstruct(self, images):
        """Images decoded from the whole code of images.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            dict: `images` (B, H, W, C); `primary_capsules` (B, I, D), as decoded.
        """
        return self.render(self.code(images)["capsules"])

    def sample(self, n, seed, domain="complete"):
        """Images, each from one capsule drawn at random.

        Args:
            n: int or scalar integer tensor, how many.
            seed: int or scalar integer tensor.
            domain: `"complete"`, `"restricted"` or `"visited"`, see
                `ProductOfExpertCapsules.draw`.

        Returns:
            dict: `images` (N, H, W, C), pixels in [0, 1]; `capsules` (N, J, E).
        """
        capsule = keras.random.randint((n,), 0, self.capsules, seed=StatelessSeed(seed, 1))
        return self._sampled(n, seed, capsule, domain)

    def sample_capsule(self, capsule, n, seed, domain="complete"):
        """Images from one capsule; `capsule` is its index, the rest as in `sample`."""
        return self._sampled(n, seed, ops.full((n,), capsule, dtype="int32"), domain)

    def sample_joint(self, n, seed):
        """Images from whole codes, all capsules at once; results as of `sample`."""
        noise = keras.random.normal((n, self.joint_rank), seed=StatelessSeed(seed))
        codes = self.draw_joint(noise, _choice(n, seed))
        return {**self.decode(codes), "capsules": codes}

    def _sampled(self, n, seed, capsule, domain):
        noise = keras.random.normal((n, self.dim), seed=StatelessSeed(seed))
        codes = self.draw(noise, _choice(n, seed), capsule, domain)
        return {**self.decode(codes), "capsules": codes}


def _choice(n, seed):
    return keras.random.uniform((n,), seed=StatelessSeed(seed, 2))


def _chosen(values, *keys):
    return {key: values[key] for key in keys}
