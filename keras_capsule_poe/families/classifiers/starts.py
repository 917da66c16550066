"""Initializers of the layers of a classifier."""

import keras

from keras_capsule_poe.functions.checks import one_of

INITIAL = ("glorot", "official", "he")


class Starts:
    """Initializers of a network's layers, each with a new seed."""

    def __init__(self, kind, seed):
        self._kind, self.seed = one_of("initial", kind, INITIAL), seed

    def kernel(self, stddev):
        """Return a filter initializer; only the kind "official" uses `stddev`."""
        self.seed += 1
        if self._kind == "official":
            return keras.initializers.TruncatedNormal(stddev=stddev, seed=self.seed)
        known = {"glorot": keras.initializers.GlorotUniform, "he": keras.initializers.HeNormal}
        return known[self._kind](seed=self.seed)

    def kernels(self, stddev):
        """Return a filter initializer without a seed, so that several layers can share it."""
        start = self.kernel(stddev)
        return type(start).from_config({**start.get_config(), "seed": None})

    def bias(self):
        return keras.initializers.Constant(0.1 if self._kind == "official" else 0.0)

    def maps(self, stddev):
        """Return an initializer of prediction maps."""
        # Keras' fan-in rules do not fit their four axes.
        self.seed += 1
        return keras.initializers.TruncatedNormal(stddev=stddev, seed=self.seed)
