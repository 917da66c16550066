"""Sampling of codes of a product of expert capsules."""

from numbers import Integral

import keras
from keras import ops

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.norms import direction, length
from keras_capsule_poe.functions.squash import squash
from keras_capsule_poe.models.randomness import StatelessSeed, capsule_order


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
            choice: Tensor (N,), uniform in `[0, 1)`, selects a mixture component for `"visited"`.
            capsule: Integer tensor (N,), the active capsules.
            domain: String. `"complete"` is the prior: the squashed noise (Figure 2, left), or for
                a biased expert directions in the half-sphere around its bias. `"restricted"`
                reflects the squashed noise into the half-space of the mean training direction
                (Figure 2, right). `"visited"` takes directions from the Gaussian mixture of the
                training codes that the capsule won.
        """
        _, domain = self.resolve_mode("single", domain)
        x = squash(noise)
        if domain == "visited":
            x = length(x, keepdims=True) * direction(self.visited(noise, choice, capsule))
        elif domain == "restricted":
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
