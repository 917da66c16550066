"""How codes of a product of expert neurons are drawn at random."""

from numbers import Integral

import keras
from keras import ops

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.exact_draws import draw_states
from keras_capsule_poe.functions.randomness import draw_index, streams
from keras_capsule_poe.functions.slices import in_parts
from keras_capsule_poe.models.randomness import StatelessSeed, capsule_order

# Chains that are walked together: noise of all of them would take gigabytes.
_AT_ONCE = 250


class NeuronDraws:
    """Codes of single capsules, exact, and of all together, by Gibbs sampling.

    To be mixed into a model of J capsules of E neurons with a `NeuronPoE` as `layer`, and weights
    `visited` (J, K, E), probabilities of neurons on images that each capsule won, and `shares`
    (J,), of the images that it won; and a `top` layer, or None.
    """

    def rest(self):
        """Where neurons are at rest, lambda, (J, E)."""
        offset = self.layer.hidden_offset
        return ops.zeros((self.capsules, self.dim)) if offset is None else offset

    def draw(self, n, seed, mode=None, domain=None):
        """Codes drawn at random, see `single_code` and `joint_code`.

        In mode `"single"` each block of J codes has each capsule once, in random order.

        Args:
            n: int or scalar integer tensor, how many.
            seed: int or scalar integer tensor.
            mode: `"single"` or `"joint"`.
            domain: Of mode `"single"`, see `single_code`.

        Returns:
            dict: `capsules` (N, J, E); in mode `"single"` also `capsule` (N,).

        Raises:
            BadUse: If the mode or the domain is unknown.
        """
        mode, domain = self.resolve_mode(mode, domain)
        if mode == "joint":
            return {"capsules": self.joint_code(n, seed)}
        capsule = capsule_order(n, self.capsules, StatelessSeed(seed, 1))
        return {"capsules": self.single_code(capsule, seed, domain), "capsule": capsule}

    def sample_capsule(self, capsule, n, seed, domain=None):
        """Images from one capsule; `capsule` is its index, the rest as in `sample`."""
        if isinstance(capsule, Integral) and not 0 <= capsule < self.capsules:
            raise BadUse(
                f"`capsule` must be an index of {self.capsules} capsules, from 0. "
                f"Received: capsule={capsule}"
            )
        codes = self.single_code(ops.full((n,), capsule, dtype="int32"), seed, domain)
        return {**self.decode(codes), "capsules": codes}

    def sample_joint(self, n, seed):
        """Images from all neurons at once: `sample` in mode `"joint"`."""
        return self.sample(n, seed, "joint")

    def single_code(self, capsule, seed, domain=None):
        """Codes in which one capsule is drawn and all others are at rest.

        Args:
            capsule: Integer tensor (N,), the capsule of each code.
            seed: int or scalar integer tensor.
            domain: `"complete"`: the law of that capsule alone, exact, all of its 2^E states
                enumerated. `"uniform"`: each neuron on with probability 1/2. `"visited"`: the
                neurons of a training image that it won, drawn of p(h | v).

        Returns:
            Tensor (N, J, E).

        Raises:
            BadUse: If `domain` is unknown.
        """
        _, domain = self.resolve_mode("single", domain)
        first, second = streams(StatelessSeed(seed), 2)
        if domain == "complete":
            h = draw_states(self.layer.state_log_weights(), capsule, first)
        else:
            p = ops.full((ops.shape(capsule)[0], self.dim), 0.5)
            if domain == "visited":
                which = draw_index(ops.zeros((ops.shape(capsule)[0], self.remembered)), second)
                rows = capsule * self.remembered + which
                p = ops.take(ops.reshape(self.visited, (-1, self.dim)), rows, axis=0)
            h = ops.cast(keras.random.uniform(ops.shape(p), seed=first) < p, p.dtype)
        y = (ops.cast(h, "float32") - ops.take(self.rest(), capsule, axis=0)) / self.dim**0.5
        return ops.one_hot(capsule, self.capsules, dtype=y.dtype)[:, :, None] * y[:, None, :]

    def joint_code(self, n, seed):
        """Codes (N, J, E) of all neurons after Gibbs steps from noise.

        Each chain is routed as images that one capsule wins, drawn by how many it won, are on
        average; latent parents are drawn with the neurons. Of a mixture draws are exact. With a
        top layer the neurons are of its law instead.
        """
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
        """Neurons (N, J, E) after Gibbs steps from noise."""
        first, second, third = streams(seed, 3)
        logits = ops.log(ops.maximum(self.shares, 1e-30))
        winner = draw_index(ops.broadcast_to(logits, (n, self.capsules)), first)
        c, v = self.layer.coefficients_of_winner(winner), self.noise(n, second)
        return self.layer.gibbs(v, c, self.joint_steps, third)[1]

    def noise(self, n, seed):
        """Visible neurons (N, I, D) of the machine without maps."""
        layer, bias = self.layer, self.layer.visible_bias
        visible = layer.neuron_units()[1]
        return layer.received(visible.sample(ops.broadcast_to(bias, (n, *bias.shape)), seed))
