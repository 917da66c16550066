"""Images composed of others on the fly, reproducible from the seed and the epoch."""

from keras_capsule_poe.data.composed.affine import Affine
from keras_capsule_poe.data.composed.composed_set import ComposedSet
from keras_capsule_poe.data.composed.composition import Composition
from keras_capsule_poe.data.composed.pairs import Overlapping, SideBySide
from keras_capsule_poe.data.composed.translated import Translated

__all__ = ["Affine", "ComposedSet", "Composition", "Overlapping", "SideBySide", "Translated"]
