"""Routing as inference: each visible capsule has one latent parent among the hidden capsules."""

import math
from typing import Any

from keras import ops, tree

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.numerics import at_least_float32, real_number, whole_number
from keras_capsule_poe.core.randomness import draw_index, index_noise, index_of
from keras_capsule_poe.core.routing import Routing
from keras_capsule_poe.core.units import BinaryUnits
from keras_capsule_poe.former_names import with_former_names


@with_former_names
class LatentRouter:
    """Inference of the latent parents of visible capsules, by mean field or by sampling.

    The parent c_i of a visible capsule is one-hot over the J hidden capsules, uniform a priori:

        -E(v, h, c) = b.v + a.h + s sum_ij c_ij h_j^T W_ij v_i - base_energy(v)
        P(c_i = j | v, h) = softmax_j(s h_j^T W_ij v_i)

    Mean field in (h, c) is dynamic routing with dot agreement, a softmax over the outputs and
    replaced logits.

    Args:
        maps: Maps such as `EinsumMaps`.
        hidden: Units of the hidden capsules; None: `BinaryUnits`.
        hidden_bias: Tensor (J, E), a; None: zero.
        routing_iterations: int, counted as Sabour et al. count them: the first iteration has the
            initial probabilities, so r iterations update the parents r - 1 times.
        coefficient_sum: float, s, above zero.

    Raises:
        ValueError: If a number is out of range.

    Example:

    >>> from keras_capsule_poe.functions import EinsumMaps
    >>> router = LatentRouter(EinsumMaps(ops.ones((6, 5, 3, 4))))
    >>> c, z = router.route(ops.ones((2, 6, 4)))
    >>> c.shape, z.shape, round(float(ops.sum(c[0, 0])), 3)
    (TensorShape([2, 6, 5]), TensorShape([2, 5, 3]), 1.0)

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Procedure 1
    - [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons
    """

    def __init__(
        self,
        maps: Any,
        hidden: Any = None,
        hidden_bias: Tensor | None = None,
        *,
        routing_iterations: int = 4,
        coefficient_sum: float = 1.0,
    ) -> None:
        self.maps, self._hidden = maps, (hidden or BinaryUnits()).laid(maps.lay_outputs)
        self._bias = 0.0
        if hidden_bias is not None:
            self._bias = maps.lay_outputs(ops.cast(hidden_bias, maps.kernel.dtype)[None])
        self._iterations = whole_number("routing_iterations", routing_iterations)
        self.coefficient_sum = real_number("coefficient_sum", coefficient_sum, above=0)
        self._agreement = maps.agreements("dot")

    def route(self, x):
        """Infer the parents of inputs by mean field.

        Args:
            x: Tensor (B, I, D), states of the visible units.

        Returns:
            `Routing`: s times the probabilities of the parents (B, I, J), and the pre-activations
            z_j = sum_i c_ij W_ij x_i (B, J, E), without the hidden bias.
        """
        maps = self.maps
        c, steps = self.steps(maps.lay_inputs(ops.cast(at_least_float32(x), maps.kernel.dtype)))
        return Routing(maps.unlay_pairs(c), maps.unlay_outputs(steps[-1]))

    def steps(self, x):
        """Return c and the list of pre-activations, for inputs in the layout of the maps."""
        maps = self.maps
        share = maps.lay_numbers(ops.full((maps.outputs,), 1 / maps.outputs, x.dtype))
        share = self.coefficient_sum * share
        c = maps.equal_pairs(share, x)
        steps = [maps.equal_up(x) * ops.expand_dims(share, maps.output_axis)]
        for _ in range(self._iterations - 1):
            y = self._hidden.mean(steps[-1] + self._bias, axis=maps.output_axis)
            c = self.given(x, y)
            steps.append(maps.up(c, x))
        return c, steps

    def given(self, x, y, noise=None):
        """Return s times the parents given both layers: probabilities, or samples with `noise`."""
        maps = self.maps
        agreement = self._agreement.of(self._agreement.measure(x), y)
        scaled = tree.map_structure(lambda pairs: self.coefficient_sum * pairs, agreement)
        if noise is None:
            return maps.softmax(scaled, "outputs", self.coefficient_sum)
        logits = maps.unlay_pairs(scaled)
        drawn = ops.one_hot(index_of(logits, noise), maps.outputs, dtype=logits.dtype)
        return maps.lay_pairs(self.coefficient_sum * drawn)

    def noise(self, shape, dtype, seed):
        """Return the noise of a sample of parents, see `index_noise`."""
        return index_noise(shape, dtype, seed)


@with_former_names
def latent_free_energy(harmonium: Any, x: Tensor, coefficient_sum: float = 1.0) -> Tensor:
    """Return minus the ELBO, an upper bound on the free energy F(v) of the visible units.

    The bound sums out the hidden units and the parents. With probabilities c/s of the parents,
    ELBO = -F(v; c) + sum_i H(c_i/s) - I log J. Mean-field updates never increase the bound.

    Args:
        harmonium: `Harmonium` with coefficients (B, I, J), s times probabilities.
        x: Tensor (B, I, D), states of the visible units.
        coefficient_sum: float, s.

    Returns:
        Tensor (B,), in nats. It is exact if J is one.

    Example:

    >>> from keras_capsule_poe.functions import EinsumMaps, Harmonium
    >>> c = ops.ones((2, 6, 5)) / 5
    >>> machine = Harmonium(EinsumMaps(ops.zeros((6, 5, 3, 4))), coefficients=c)
    >>> round(float(latent_free_energy(machine, ops.ones((2, 6, 4)))[0] / np.log(2)), 3)
    -15.0
    """
    p = ops.cast(harmonium.coefficients, harmonium.maps.kernel.dtype) / coefficient_sum
    log_p = ops.log(ops.where(p > 0, p, ops.ones_like(p)))
    divergence = ops.sum(p * (log_p + math.log(p.shape[-1])), axis=(1, 2))
    return harmonium.free_energy(x) + divergence


def parents_given_hidden(harmonium, y, scale, seed):
    """Sample coefficients (B, I, J), s times one-hot parents, given hidden states y (B, J, E)."""
    kernel = harmonium.maps.kernel
    votes = ops.einsum("ijed,bje->bijd", kernel, ops.cast(y, kernel.dtype))
    fields = harmonium.visible_bias[:, None] + scale * votes
    # Centred units have an offset (I, D) per capsule.
    units = harmonium.visible.laid(lambda offset: ops.expand_dims(offset, -2))
    parent = draw_index(-units.free_energy(fields), seed)
    return scale * ops.one_hot(parent, kernel.shape[1], dtype=kernel.dtype)
