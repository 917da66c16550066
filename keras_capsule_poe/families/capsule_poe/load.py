"""Loading of a trained product of expert capsules."""

from keras_capsule_poe.families.saved import load_as

# This import registers the classes with Keras.
from keras_capsule_poe.models import ProductOfExpertCapsules


def load(path):
    """Load the `ProductOfExpertCapsules` of a `model.keras`."""
    return load_as(ProductOfExpertCapsules, path)
