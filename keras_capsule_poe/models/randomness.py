"""Random numbers that depend on a seed and a counter, and on nothing that a run accumulates."""

import keras
from keras import ops


class StatelessSeed(keras.random.SeedGenerator):
    """A seed generator without state: every draw uses the pair (seed, counter).

    The state of an ordinary `SeedGenerator` is neither saved with the weights nor different
    between replicas. With (seed, step) instead a resumed run draws what an uninterrupted one
    draws, and a SavedModel takes its seed as an input.

    Args:
        seed: int or scalar integer tensor.
        counter: int or scalar integer tensor, for instance the training step.
    """

    def __init__(self, seed, counter=0):
        # No call of the base: it would make a variable.
        dtype = "int64" if keras.backend.backend() == "tensorflow" else "uint32"
        self.pair = ops.stack([ops.cast(seed, dtype), ops.cast(counter, dtype)])

    def next(self, ordered=True):
        return self.pair


def replica_seed(seed):
    """`seed` made different for each replica of a `tf.distribute` strategy."""
    if keras.backend.backend() != "tensorflow":
        return seed
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return seed
    return ops.cast(seed, "int64") + 7919 * ops.cast(context.replica_id_in_sync_group, "int64")
