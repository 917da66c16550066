"""Families of models: the only room that knows how a model is trained."""

from keras_capsule_poe.families.registry import get, names, register

__all__ = ["get", "names", "register"]
