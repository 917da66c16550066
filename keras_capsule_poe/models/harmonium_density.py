"""The density of a Boltzmann machine of images, and its log Z by enumeration and annealing."""

import numpy as np
from keras import ops

from keras_capsule_poe.functions.annealing import Bracket, annealing_schedule
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.functions.harmonium import gibbs_chain
from keras_capsule_poe.functions.harmonium_partition import (
    annealed_partition,
    draw_enumerated,
    enumerated_log_partition,
    reverse_annealed_partition,
)
from keras_capsule_poe.functions.randomness import split
from keras_capsule_poe.models.likelihood import Density

# The schedule of Salakhutdinov & Murray: shares of the temperatures up to each.
_PIECES = ((0.5, 500 / 14_500), (0.9, 4000 / 14_500))
# Gibbs steps from the model's particles to where the reverse annealing starts.
_MIXED, _BLOCK = 1000, 2048
# Enough images for the means of independent neurons.
_FITTED = 10_000
_VALUES = {
    "bernoulli": "binary visible neurons",
    "unit": "visible neurons in [0, 1], a density",
    "gaussian": "features, a density",
}


class HarmoniumDensity(Density):
    """p(v) of the visible neurons of an `ImageBoltzmannMachine`.

    Args:
        model: `ImageBoltzmannMachine`.
        images: Array (N, H, W, C), uint8, training images; the annealing starts from neurons
            that are independent and have their means.
        seed: int, of the neurons that are drawn where pixels are probabilities.

    Examples:

    >>> from keras_capsule_poe import RestrictedBoltzmannMachine
    >>> from keras_capsule_poe.models.boltzmann import ImageBoltzmannMachine
    >>> model = ImageBoltzmannMachine(RestrictedBoltzmannMachine(3), (4, 4, 1))
    >>> model.build()
    >>> images = np.random.default_rng(0).integers(256, size=(9, 4, 4, 1)).astype("uint8")
    >>> density = model.density(images)
    >>> found = density.bracket(temperatures=100, chains=100, seed=0)
    >>> abs(found.forward - density.exact()) < 1
    True

    Reference:

    - [Salakhutdinov & Murray, 2008](https://doi.org/10.1145/1390156.1390266)
    - [Grosse et al., 2015](https://arxiv.org/abs/1511.02543), bracketing from both sides
    """

    TEMPERATURES, CHAINS = 14_500, 100

    def __init__(self, model, images, seed=0):
        self._model, self._seed = model, seed
        how = {"stochastic": ", each drawn with its pixel as probability", None: ""}
        how = how.get(model.binarize, ", one where a pixel is above a half")
        neurons = model.particles.shape[-1]
        self.about = f"{neurons} {_VALUES[model.machine.visible]}{how}"
        self._base, _ = model.machine.independent(self._visible(images[:_FITTED]))

    def log_weights(self, images):
        """-F of the visible neurons of images, (N,), nats."""
        return -in_blocks(self._model.machine.free_energy, self._visible(images))

    def exact(self):
        """log Z, the smaller layer enumerated, or None where neither is small."""
        try:
            return enumerated_log_partition(self._harmonium())
        except ValueError:
            return None

    def bracket(self, temperatures, chains, seed):
        """Annealing from independent neurons to the machine, and back.

        The way back starts at exact draws where a layer can be enumerated. Else it starts some
        Gibbs steps from the model's particles: the upper side is worth as much as these.
        """
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
            x = self._particles(chains)
        return compiled(lambda x: gibbs_chain(machine, x, _MIXED, seed)[0])(x)

    def _harmonium(self):
        return self._model.machine.harmonium()

    def _particles(self, chains):
        """What visible neurons send where the chains of the way back start."""
        rows = np.arange(chains) % self._model.kept
        return self._model.machine.sent(ops.take(self._model.particles, rows, axis=0))

    def _visible(self, images):
        """Visible neurons (N, D) as an array."""
        v = in_blocks(self._model.to_visible, images, "float32")
        if self._model.binarize != "stochastic":
            return v
        drawn = np.random.default_rng(self._seed).uniform(size=v.shape)
        return (drawn < v).astype("float32")


def in_blocks(function, images, dtype="float64"):
    """A function of pixels in [0, 1], or of rows, over a long array, as an array.

    Args:
        function: Function of a tensor (B, ...) to a tensor (B, ...).
        images: Array (N, ...), uint8, or real.
        dtype: Of what comes back.

    Returns:
        Array (N, ...).

    Examples:

    >>> in_blocks(lambda x: 2 * x, np.ones((3, 2), "float32")).tolist()
    [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]
    """
    parts, function = [], compiled(function)
    for start in range(0, len(images), _BLOCK):
        part = np.asarray(images[start : start + _BLOCK])
        part = part.astype("float32") / (255 if part.dtype == np.uint8 else 1)
        parts.append(np.asarray(function(part), dtype))
    return np.concatenate(parts)


def schedule(temperatures):
    """So many inverse temperatures from zero to one, denser towards one.

    Args:
        temperatures: int, two or more.

    Returns:
        Array (temperatures + 1,).

    Examples:

    >>> len(schedule(14_500)), len(schedule(2))
    (14501, 3)
    """
    pieces = [(beta, int(share * temperatures)) for beta, share in _PIECES]
    pieces = [(beta, number) for beta, number in pieces if number]
    rest = temperatures - sum(number for _, number in pieces)
    return annealing_schedule(*pieces, (1.0, rest))
