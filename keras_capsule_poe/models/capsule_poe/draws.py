"""How codes of a product of expert capsules are drawn at random."""

from numbers import Integral

import keras
from keras import ops

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.norms import direction, length
from keras_capsule_poe.functions.squash import squash
from keras_capsule_poe.models.randomness import StatelessSeed, capsule_order


class CapsuleDraws:
    """Codes of single capsules, and of all together.

    To be mixed into a model of J capsules of E dimensions with two `GaussianMixtures`, `visited`
    and `joint`, and `mean_direction` (J, E).

    Attributes:
        poles: Tensor (J, E), the biases of affine capsules; or None. One that is zero is none.
    """

    poles = None

    def sample_capsule(self, capsule, n, seed, domain=None):
        """Images from one capsule; `capsule` is its index, the rest as in `sample`."""
        if isinstance(capsule, Integral) and not 0 <= capsule < self.capsules:
            raise BadUse(
                f"`capsule` must be an index of {self.capsules} capsules, from 0. "
                f"Received: capsule={capsule}"
            )
        _, domain = self.resolve_mode("single", domain)
        codes = self._draw_single(ops.full((n,), capsule, dtype="int32"), n, seed, domain)
        return {**self.decode(codes), "capsules": codes}

    def sample_joint(self, n, seed):
        """Images from whole codes, all capsules at once: `sample` in mode `"joint"`."""
        return self.sample(n, seed, "joint")

    def draw(self, n, seed, mode=None, domain=None):
        """Codes drawn at random, see `single_code` and `joint_code`.

        In mode `"single"` each block of J codes has each capsule on once, in random order.

        Args:
            n: int or scalar integer tensor, how many.
            seed: int or scalar integer tensor.
            mode: `"single"` or `"joint"`.
            domain: Of mode `"single"`, see `single_code`.

        Returns:
            dict: `capsules` (N, J, E), squashed; in mode `"single"` also `capsule` (N,), the one
            that is on.

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
        """Codes in which one capsule is on.

        Args:
            noise: Tensor (N, E), standard Gaussian.
            choice: Tensor (N,), uniform in [0, 1); the component that `"visited"` draws from.
            capsule: Integer tensor (N,), the capsule of each code.
            domain: `"complete"`: the Gaussian as it is, squashed, the paper's Figure 2 (left). Of
                an affine capsule, whose codes lie in the half-sphere around its bias, the
                orientation comes from a Gaussian in the chart of that half, see `from_chart`.
                `"restricted"`: reflected into the half-sphere around the mean direction that
                training visited, Figure 2 (right); in their frames codes are centred, and that
                direction says little. `"visited"`: the orientation from the mixture
                of Gaussians of the codes of the training images on which the capsule was the
                most probable, the length that of the squashed Gaussian.

        Returns:
            Tensor (N, J, E), squashed; all capsules but one are zero.

        Raises:
            BadUse: If `domain` is unknown.
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


def from_chart(noise, poles):
    """Directions in the half-spheres around poles, Gaussian in their gnomonic charts.

    (p + r)/|p + r|, with p the direction of the pole and r the part of the noise across it: a
    standard Gaussian of E - 1 dimensions.

    Args:
        noise: Tensor (N, E), standard Gaussian.
        poles: Tensor (N, E), of any length; where it is zero, the noise's own direction.

    Returns:
        Tensor (N, E), of length one.

    Examples:

    >>> import numpy as np
    >>> drawn = from_chart(np.array([[-3.0, 1.0]]), np.array([[2.0, 0.0]]))
    >>> np.round(np.asarray(drawn), 3).tolist()
    [[0.707, 0.707]]
    """
    pole = direction(poles)
    across = noise - pole * ops.sum(noise * pole, axis=-1, keepdims=True)
    return direction(pole + across)


def _choice(n, seed):
    return keras.random.uniform((n,), seed=StatelessSeed(seed, 2))
