"""Gaussian mixtures whose parameters are weights of a layer."""

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.functions.processor import BLOCK, at_once
from keras_capsule_poe.functions.slices import over_images


@keras.saving.register_keras_serializable("keras_capsule_poe")
class GaussianMixtures(keras.layers.Layer):
    """Sampler of G Gaussian mixtures: y = m_gk + F_gk noise, component k of group g."""

    def __init__(self, groups, components, dim, rank=None, **kwargs):
        super().__init__(**kwargs)
        self.groups, self.components, self.dim, self.rank = groups, components, dim, rank or dim

    def build(self, input_shape=None):
        def statistic(name, *shape, start="zeros"):
            shape = (self.groups, self.components, *shape)
            return self.add_weight(shape=shape, initializer=start, trainable=False, name=name)

        self.weights_of = statistic("weights", start="ones")
        self.means = statistic("means", self.dim)
        self.factors = statistic("factors", self.dim, self.rank)
        self.built = True

    @classmethod
    def of(cls, weights, means, factors, **kwargs):
        """Return a layer with weights (G, K), means (G, K, E) and factors (G, K, E, R)."""
        layer = cls(*np.shape(means), rank=np.shape(factors)[-1], **kwargs)
        layer.build()
        layer.set_weights([weights, means, factors])
        return layer

    def call(self, noise, choice, group):
        # Draw in slices: the factors of 10,000 codes at once would take 0.8 GB.
        fitting = max(1, at_once(BLOCK) // (self.dim * self.rank))
        arrays = [noise, choice, group]
        (drawn,), _ = over_images(self._some, arrays, fitting, [(self.dim,)], [])
        return drawn

    def _some(self, noise, choice, group):
        weights = ops.take(self.weights_of, group, axis=0)
        reached = ops.cumsum(weights, axis=-1) / ops.sum(weights, axis=-1, keepdims=True)
        component = ops.sum(ops.cast(reached <= choice[:, None], "int32"), axis=-1)
        index = group * self.components + ops.minimum(component, self.components - 1)
        means = ops.reshape(self.means, (-1, self.dim))
        factors = ops.reshape(self.factors, (-1, self.dim, self.rank))
        spread = ops.einsum("ner,nr->ne", ops.take(factors, index, axis=0), noise)
        return [ops.take(means, index, axis=0) + spread], []

    def get_config(self):
        return {
            **super().get_config(),
            "groups": self.groups,
            "components": self.components,
            "dim": self.dim,
            "rank": self.rank,
        }
