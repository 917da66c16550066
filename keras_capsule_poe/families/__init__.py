"""Model families: settings, presets, training stages and loading of each kind of model."""

from keras_capsule_poe.families.registry import get, names, register

__all__ = ["get", "names", "register"]
