"""The trained product of a file."""

import keras

# Makes the classes known to Keras.
from keras_capsule_poe.models import ProductOfExpertCapsules


def load(path):
    """The `ProductOfExpertCapsules` of a `model.keras`.

    Raises:
        ValueError: If the file holds another kind of model.
    """
    model = keras.models.load_model(path, compile=False)
    if not isinstance(model, ProductOfExpertCapsules):
        raise ValueError(f"it holds a {type(model).__name__}")
    return model
