"""Seeds, and the random order in which capsules are drawn."""

import keras
from keras import ops

from keras_capsule_poe.functions.randomness import StatelessSeed

__all__ = ["StatelessSeed", "capsule_order"]


def capsule_order(n, capsules, seed):
    """Return capsules (n,) of n images; each block of J has every capsule once, in random order."""
    blocks = (n + capsules - 1) // capsules
    rank = keras.random.uniform((blocks, capsules), seed=seed)
    return ops.cast(ops.reshape(ops.argsort(rank, axis=-1), (-1,))[:n], "int32")
