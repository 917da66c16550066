"""A page to play with a trained model, in a browser on this machine."""

from keras_capsule_poe.explorer.app import explore

__all__ = ["explore"]
