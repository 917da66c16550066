"""Seeds, and the order in which capsules are drawn."""

import keras
from keras import ops

from keras_capsule_poe.functions.randomness import StatelessSeed

__all__ = ["StatelessSeed", "capsule_order"]


def capsule_order(n, capsules, seed):
    """The capsule of each of `n` images: each block of J has every one once, in random order.

    Args:
        n: int or scalar integer tensor.
        capsules: int, J.
        seed: `keras.random.SeedGenerator`.

    Returns:
        int32 tensor (N,).
    """
    blocks = (n + capsules - 1) // capsules
    rank = keras.random.uniform((blocks, capsules), seed=seed)
    return ops.cast(ops.reshape(ops.argsort(rank, axis=-1), (-1,))[:n], "int32")
