"""Random numbers that depend only on a seed and a counter."""

import keras
from keras import ops

from keras_capsule_poe.core.numerics import largest


class StatelessSeed(keras.random.SeedGenerator):
    """Seed generator without state: every draw uses the pair (seed, counter)."""

    def __init__(self, seed, counter=0):
        # The base class would create a variable. Without one, a resumed run draws the same
        # numbers as an uninterrupted run, and a SavedModel can take the seed as an input.
        dtype = "int64" if keras.backend.backend() == "tensorflow" else "uint32"
        self.pair = ops.stack([ops.cast(seed, dtype), ops.cast(counter, dtype)])

    def next(self, ordered=True):
        return self.pair

    def later(self, counts):
        """Return this seed with its counter increased by `counts`."""
        return StatelessSeed(self.pair[0], self.pair[1] + ops.cast(counts, self.pair.dtype))


def split(seed, number):
    """Return an int32 tensor (number, 2) of seed pairs, one for each independent stream."""
    if not isinstance(seed, keras.random.SeedGenerator):
        seed = StatelessSeed(seed)
    return keras.random.randint((number, 2), 0, 2**31 - 1, seed=seed)


def streams(seed, number):
    """Return `number` independent `StatelessSeed` streams of one seed."""
    pairs = split(seed, number)
    return [StatelessSeed(pairs[k, 0], pairs[k, 1]) for k in range(number)]


def draw_index(logits, seed):
    """Sample one index (...) per row from the softmax of logits (..., K)."""
    if not isinstance(seed, keras.random.SeedGenerator):
        seed = StatelessSeed(seed)
    return index_of(logits, index_noise(ops.shape(logits), logits.dtype, seed))


def index_noise(shape, dtype, seed):
    """Return the noise of `draw_index`: uniform numbers above zero."""
    return keras.random.uniform(shape, 1e-30, 1.0, dtype=dtype, seed=seed)


def index_of(logits, noise):
    """Return the int32 index (...) that logits (..., K) and `index_noise` give (Gumbel-max)."""
    return largest(logits - ops.log(-ops.log(noise)))


def step_seed(seed, step):
    """Return the seed of one step of a chain, a scalar integer tensor."""
    return keras.random.randint((), 0, 2**31 - 1, seed=StatelessSeed(seed, step))


def capsule_order(n, capsules, seed):
    """Return capsules (n,) of n images; each block of J has every capsule once, in random order."""
    blocks = (n + capsules - 1) // capsules
    rank = keras.random.uniform((blocks, capsules), seed=seed)
    return ops.cast(ops.reshape(ops.argsort(rank, axis=-1), (-1,))[:n], "int32")
