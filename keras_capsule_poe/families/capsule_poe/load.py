"""The trained product of a file."""

from keras_capsule_poe.families.saved import load_as

# Makes the classes known to Keras.
from keras_capsule_poe.models import ProductOfExpertCapsules


def load(path):
    """The `ProductOfExpertCapsules` of a `model.keras`; see `load_as`."""
    return load_as(ProductOfExpertCapsules, path)
