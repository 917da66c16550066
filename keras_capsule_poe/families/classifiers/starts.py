"""Initial values of the layers of a classifier."""

import keras

from keras_capsule_poe.functions.checks import one_of

INITIAL = ("glorot", "official", "he")


class Starts:
    """Initial values of the layers of a network, one seed after the other.

    Args:
        kind: One of `INITIAL`.
        seed: int; the attribute is that of the last layer.
    """

    def __init__(self, kind, seed):
        self._kind, self.seed = one_of("initial", kind, INITIAL), seed

    def kernel(self, stddev):
        """Initial filters; the deviation is that of the official code."""
        self.seed += 1
        if self._kind == "official":
            return keras.initializers.TruncatedNormal(stddev=stddev, seed=self.seed)
        known = {"glorot": keras.initializers.GlorotUniform, "he": keras.initializers.HeNormal}
        return known[self._kind](seed=self.seed)

    def kernels(self, stddev):
        """The same for several layers: without a seed, so that their numbers differ."""
        start = self.kernel(stddev)
        return type(start).from_config({**start.get_config(), "seed": None})

    def bias(self):
        """Initial biases."""
        return keras.initializers.Constant(0.1 if self._kind == "official" else 0.0)

    def maps(self, stddev):
        """Initial prediction maps; Keras' rules mean nothing for their four axes."""
        self.seed += 1
        return keras.initializers.TruncatedNormal(stddev=stddev, seed=self.seed)
