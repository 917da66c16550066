"""Markov chains of an RBM in training: initial states, persistence and tempering."""

import numpy as np
from keras import ops

from keras_capsule_poe.functions.harmonium import gibbs_chain
from keras_capsule_poe.functions.tempering import replica_exchange
from keras_capsule_poe.models.replicas import replicas_in_sync


class HarmoniumChains:
    """Mixin for a model with a `machine` and persistent chains; each device runs all of them."""

    def _chains(self, v, seeds):
        """Return centred initial states, or None for the data, and those of hotter chains."""
        if self.algorithm == "cd" and self.start == "data":
            return None, None
        if replicas_in_sync(self) > 1:
            raise RuntimeError(
                "Under a strategy of Keras chains start from the data: use algorithm='cd' and "
                f"start='data'. Received: algorithm={self.algorithm!r}, start={self.start!r}"
            )
        machine, x = self.machine.harmonium(), self.machine.sent(v)
        if self.algorithm == "cd":
            return self._noise(machine, ops.shape(x)[:1], seeds[0]), None
        levels = self.particles.shape[0]
        if self.start == "noise":
            first = self._noise(machine, (levels, self.chains), seeds[0])
        else:
            rows = ops.arange(levels * self.chains) % ops.shape(x)[0]
            first = ops.reshape(ops.take(x, rows, axis=0), self.particles.shape)
        chains = ops.where(self.age > 0, self._uncentred(self.particles, -1), first)
        if self.algorithm == "pcd":
            return chains[0], chains[1:]
        return self._tempered(machine, chains, seeds[1:])

    def _tempered(self, machine, chains, seeds):
        """Step the hotter chains, exchange replicas, and return the chains at beta 1 and below."""
        levels = self.temperatures
        betas = ops.cast(np.linspace(1, 0, levels), chains.dtype)
        # Two levels have only the even pair (0, 1).
        odd = self.age % (1 if levels == 2 else 2)
        hot = machine.tempered(betas[1:, None, None])
        hotter, _ = gibbs_chain(hot, chains[1:], self.steps, seeds[0])
        chains, has_moved = replica_exchange(
            lambda x, b: machine.tempered(b[..., None]).free_energy(x),
            ops.concatenate([chains[:1], hotter]),
            betas,
            seeds[1],
            odd=odd,
        )
        paired = ops.cast((levels - odd) // 2 * 2 * self.chains, chains.dtype)
        self.exchange_tracker.update_state(ops.sum(ops.cast(has_moved, chains.dtype)) / paired)
        return chains[0], chains[1:]

    def _noise(self, machine, shape, seed):
        """Draw centred visible neurons of the RBM without maps."""
        bias = machine.visible_bias
        return machine.visible.sample(ops.broadcast_to(bias, (*shape, *bias.shape)), seed)

    def _uncentred(self, x, sign=1):
        offset = self.machine.visible_offset
        return x if offset is None else x + sign * offset
