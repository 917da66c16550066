"""Sampling of codes of a product of expert neurons."""

from numbers import Integral

import keras
from keras import ops

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.exact_draws import draw_states
from keras_capsule_poe.functions.randomness import draw_index, streams
from keras_capsule_poe.functions.slices import in_parts
from keras_capsule_poe.models.randomness import StatelessSeed, capsule_order

# Chains per chunk; the noise of all chains would take gigabytes.
_AT_ONCE = 250


class NeuronDraws:
    """Mixin that samples codes of single capsules exactly, and joint codes by Gibbs sampling."""

    def rest(self):
        """Return the rest values lambda (J, E) of the neurons, zero without centring."""
        offset = self.layer.hidden_offset
        return ops.zeros((self.capsules, self.dim)) if offset is None else offset

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
            return {"capsules": self.joint_code(n, seed)}
        capsule = capsule_order(n, self.capsules, StatelessSeed(seed, 1))
        return {"capsules": self.single_code(capsule, seed, domain), "capsule": capsule}

    def sample_capsule(self, capsule, n, seed, domain=None):
        """Sample images from the capsule with index `capsule`; otherwise like `sample`."""
        if isinstance(capsule, Integral) and not 0 <= capsule < self.capsules:
            raise BadUse(
                f"`capsule` must be an index of {self.capsules} capsules, from 0. "
                f"Received: capsule={capsule}"
            )
        codes = self.single_code(ops.full((n,), capsule, dtype="int32"), seed, domain)
        return {**self.decode(codes), "capsules": codes}

    def sample_joint(self, n, seed):
        """Sample images in mode `"joint"`, with all neurons active."""
        return self.sample(n, seed, "joint")

    def single_code(self, capsule, seed, domain=None):
        """Sample codes (N, J, E) in which one capsule is active and all others are at rest.

        Args:
            capsule: Integer tensor (N,), the active capsules.
            seed: Integer or scalar integer tensor.
            domain: String. `"complete"` samples the prior of that capsule exactly, over all 2^E
                states. `"uniform"` sets each neuron with probability one half. `"visited"` samples
                p(h | v) of a training image that the capsule won.
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
