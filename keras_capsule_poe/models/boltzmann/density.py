"""The density of an RBM of images, with log Z by enumeration and annealing."""

import numpy as np
from keras import ops

from keras_capsule_poe.core.annealing import Bracket, annealing_schedule
from keras_capsule_poe.core.harmonium import gibbs_chain
from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.core.partition import (
    annealed_partition,
    draw_enumerated,
    enumerated_log_partition,
    reverse_annealed_partition,
)
from keras_capsule_poe.core.randomness import split
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.models.base.protocols import Density

# Schedule of Salakhutdinov & Murray (2008): fractions of the steps up to each beta.
_PIECES = ((0.5, 500 / 14_500), (0.9, 4000 / 14_500))
# Gibbs steps from the persistent chains to the start of the reverse annealing.
_MIXED = 1000
# Rows per call.
BLOCK = 2048
# Number of images for the means of the independent neurons.
_FITTED = 10_000
_VALUES = {
    "bernoulli": "binary visible neurons",
    "unit": "visible neurons in [0, 1], a density",
    "gaussian": "features, a density",
}


class HarmoniumDensity(Density):
    """p(v) of an `ImageBoltzmannMachine`; AIS starts at independent neurons fitted to images."""

    TEMPERATURES, CHAINS = 14_500, 100

    def __init__(self, model, images, seed=0):
        self._model, self._seed = model, seed
        how = {"stochastic": ", each drawn with its pixel as probability", None: ""}
        how = how.get(model.binarize, ", one where a pixel is above a half")
        neurons = model.particles.shape[-1]
        self.about = f"{neurons} {_VALUES[model.machine.visible]}{how}"
        self._base, _ = model.machine.independent(self._visible(images[:_FITTED]))

    def log_weights(self, images):
        """Return -F of the visible neurons of images (N,) in nats."""
        return -free_energies(self._model.machine.free_energy, self._visible(images))

    def exact(self):
        """Return log Z by enumeration, or None if no layer is small enough."""
        try:
            return enumerated_log_partition(self._harmonium())
        except ValueError:
            return None

    def bracket(self, temperatures, chains, seed):
        """Return the `Bracket` of log Z from forward and reverse annealing."""
        machine = self._harmonium()
        betas = schedule(temperatures)
        seeds = [int(part) for part in np.ravel(split(seed, 2))]
        forward = annealed_partition(machine, betas, chains, self._base, seeds[0])
        ends = self._draws(machine, chains, seeds[1])
        back = reverse_annealed_partition(machine, ends, betas, self._base, seeds[2])
        return Bracket(*forward[:2], *back[:2])

    def _draws(self, machine, chains, seed):
        try:
            return draw_enumerated(machine, chains, seed)
        except ValueError:
            # No exact draws: the upper bound is only as good as these chains.
            x = self._particles(chains)
        return compiled(lambda x: gibbs_chain(machine, x, _MIXED, seed)[0])(x)

    def _harmonium(self):
        return self._model.machine.harmonium()

    def _particles(self, chains):
        """Return the initial states of the reverse annealing's burn-in."""
        rows = np.arange(chains) % self._model.kept
        return self._model.machine.sent(ops.take(self._model.particles, rows, axis=0))

    def _visible(self, images):
        """Return visible neurons (N, D) of images as an array."""
        v = map_batches(compiled(self._model.to_visible), images, BLOCK)
        if self._model.binarize != "stochastic":
            return v
        drawn = np.random.default_rng(self._seed).uniform(size=v.shape)
        return (drawn < v).astype("float32")


def free_energies(function, rows):
    """Return a free energy (N,) of rows or images as float64."""
    return map_batches(compiled(function), rows, BLOCK).astype("float64")


def schedule(temperatures):
    """Return `temperatures` + 1 betas from zero to one, denser towards one."""
    pieces = [(beta, int(share * temperatures)) for beta, share in _PIECES]
    pieces = [(beta, number) for beta, number in pieces if number]
    rest = temperatures - sum(number for _, number in pieces)
    return annealing_schedule(*pieces, (1.0, rest))
