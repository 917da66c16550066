"""Seeds, and sums over the replicas of a `tf.distribute` strategy."""

import keras
from keras import ops

from keras_capsule_poe.functions.randomness import StatelessSeed

__all__ = ["StatelessSeed", "capsule_order", "replica_mean", "replica_seed"]


def replica_seed(seed):
    """`seed` made different for each replica of a `tf.distribute` strategy."""
    context = _replicas()
    if context is None:
        return seed
    return ops.cast(seed, "int64") + 7919 * ops.cast(context.replica_id_in_sync_group, "int64")


def replica_mean(mean, images):
    """The mean over the images of all replicas, of the mean over those of this one.

    Args:
        mean: Tensor, the mean over this replica's images.
        images: int or scalar tensor, how many they are.
    """
    context = _replicas()
    if context is None:
        return mean
    images = ops.cast(images, mean.dtype)
    return context.all_reduce("SUM", mean * images) / context.all_reduce("SUM", images)


def _replicas():
    """The replica's context where there is more than one, else None."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return None if context is None or context.num_replicas_in_sync == 1 else context


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
